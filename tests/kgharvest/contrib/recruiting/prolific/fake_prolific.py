"""Stateful fake of Prolific over HTTP: studies, submissions, a wallet, bonuses, keys, and signed events.

`serving()` runs it in a thread on the loopback interface. Tests act as its participants (`arrive`, `submit`,
`give_back`, `time_out`) and check the resulting state. Every request is validated against the table of Prolific's
fields (api_fields). Invalid requests get status 400 and are added to `violations`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, parse_qsl, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.kgharvest.contrib.recruiting.prolific.api_fields import check_answer, faults_of_request

TOKEN, SECRET = "fake-prolific-token", "fake-webhook-secret"
FEE = 0.4  # of rewards and bonuses, tax included
POLL_INTERVAL_S = 0.01  # stopping the server takes as long
TRANSITIONS = {
    ("UNPUBLISHED", "PUBLISH"): "ACTIVE",
    ("ACTIVE", "PAUSE"): "PAUSED",
    ("PAUSED", "START"): "ACTIVE",
    ("ACTIVE", "STOP"): "COMPLETED",
    ("PAUSED", "STOP"): "COMPLETED",
}
TAKING_PLACES = {"RESERVED", "ACTIVE", "AWAITING REVIEW", "APPROVED"}


class Trouble(StrEnum):
    """Outcome of one request."""

    NONE = "none"
    BUSY = "429"
    DOWN = "503"
    LOST = "lost before it is done"
    UNANSWERED = "done, and no answer comes"


class Refused(Exception):
    def __init__(self, status: int, detail: Any):
        super().__init__(detail)
        self.status, self.detail = status, detail


@dataclass
class Submission:
    id: str
    study_id: str
    participant: str
    status: str
    started_at: datetime
    completed_at: datetime | None = None
    code: str | None = None
    return_requested: datetime | None = None
    bonuses: list[int] = field(default_factory=list)
    n_payments: int = 0  # payments of the reward

    @property
    def times(self) -> dict[str, str | None]:
        return {
            "started_at": self.started_at.isoformat(),
            "completed_at": self.completed_at and self.completed_at.isoformat(),
            "return_requested": self.return_requested and self.return_requested.isoformat(),
        }


class Event(NamedTuple):
    id: str
    body: bytes


class Request(NamedTuple):
    method: str
    path: str
    body: Any


class FakeProlific:
    """Stateful fake of Prolific. `trouble` maps method and path to an outcome; `wallet` is in minor units."""

    def __init__(self, wallet: int = 1_000_000, seed: int = 0):
        self.wallet = wallet
        self.trouble: Callable[[str, str], Trouble] = lambda method, path: Trouble.NONE
        self.requests: list[Request] = []
        self.violations: list[str] = []
        self.studies: dict[str, dict[str, Any]] = {}
        self.submissions: dict[str, Submission] = {}
        self.events: list[Event] = []
        self.subscriptions: dict[str, dict[str, Any]] = {}
        self.url = ""
        self._bonuses: dict[str, list[tuple[str, int]]] = {}
        self._hook_secrets: dict[str, str] = {}
        self._numbers = itertools.count(seed * 1_000_000 + 1)
        self._key: RSAKey | None = None
        self.lock = threading.RLock()

    def new_id(self) -> str:
        return f"{next(self._numbers):024x}"

    @property
    def key(self) -> RSAKey:
        with self.lock:
            if self._key is None:
                self._key = RSAKey.generate_key(2048, {"kid": "key-1", "alg": "RS256", "use": "sig"})
        return self._key

    # Participants

    def arrive(self, study: str, participant: str = "") -> tuple[Submission, str]:
        """Let a participant take a place. Return the submission and the entry URL."""
        with self.lock:
            document = self.studies[study]
            assert document["status"] == "ACTIVE", f"the study is {document['status']}"
            assert self.n_taken(study) < document["total_available_places"], "all places are taken"
            submission = Submission(self.new_id(), study, participant or self.new_id(), "ACTIVE", datetime.now(UTC))
            self.submissions[submission.id] = submission
            self._emit_submission(submission)
            if self.n_taken(study) == document["total_available_places"]:
                self._emit_study(document)
            return submission, self.entry_url(submission)

    def n_taken(self, study: str) -> int:
        return sum(
            submission.study_id == study and submission.status in TAKING_PLACES
            for submission in self.submissions.values()
        )

    def entry_url(self, submission: Submission, **claims: Any) -> str:
        document = self.studies[submission.study_id]
        address = document["external_study_url"]
        for name, value in (
            ("PROLIFIC_PID", submission.participant),
            ("STUDY_ID", submission.study_id),
            ("SESSION_ID", submission.id),
        ):
            address = address.replace("{{%" + name + "%}}", value)
        if not document.get("is_external_study_url_secure"):
            return address
        return f"{address}&prolific_token={self.entry_token(submission, address, **claims)}"

    def entry_token(self, submission: Submission, address: str, **claims: Any) -> str:
        now = int(time.time())
        signed = {
            "iss": "https://www.prolific.com",
            "iat": now,
            "exp": now + 120,
            "aud": address,
            "sub": submission.id,
            "prolific": {**dict(parse_qsl(urlsplit(address).query)), "workspace_id": "workspace"},
            **claims,
        }
        return jwt.encode({"alg": "RS256", "kid": "key-1", "typ": "JWT"}, signed, self.key, algorithms=["RS256"])

    def submit(self, submission: Submission, code: str) -> None:
        """Let the participant enter a code, also after a timeout, and execute the actions of the code."""
        with self.lock:
            assert submission.status in ("ACTIVE", "TIMED-OUT"), submission.status
            submission.code, submission.completed_at = code, datetime.now(UTC)
            actions_by_code = {entry["code"]: entry for entry in self.studies[submission.study_id]["completion_codes"]}
            for action in actions_by_code.get(code, {"actions": []})["actions"]:
                if action["action"] == "FIXED_SCREEN_OUT_PAYMENT":
                    self._pay(submission, action["fixed_screen_out_reward"])
                    self._move(submission, "SCREENED OUT")
                    return
                if action["action"] == "REQUEST_RETURN":
                    submission.return_requested = datetime.now(UTC)
            self._move(submission, "AWAITING REVIEW")

    def give_back(self, submission: Submission) -> None:
        self._move(submission, "RETURNED")

    def time_out(self, submission: Submission) -> None:
        self._move(submission, "TIMED-OUT")

    def approve_overdue(self, now: datetime) -> None:
        """Approve submissions that have been awaiting review for 21 days."""
        with self.lock:
            for submission in self.submissions.values():
                waited = now - submission.completed_at if submission.completed_at else timedelta()
                if submission.status == "AWAITING REVIEW" and waited >= timedelta(days=21):
                    self._approve(submission)

    def _move(self, submission: Submission, status: str) -> None:
        with self.lock:
            if submission.status != status:
                submission.status = status
                self._emit_submission(submission)

    def _approve(self, submission: Submission) -> None:
        if submission.status == "APPROVED":
            return
        self._pay(submission, round(self.studies[submission.study_id]["reward"]))
        self._move(submission, "APPROVED")

    def _pay(self, submission: Submission, amount: int) -> None:
        submission.n_payments += 1
        self.wallet -= round(amount * (1 + FEE))

    # Events

    def _emit_submission(self, submission: Submission) -> None:
        fields = {"resource_id": submission.id, "event_type": "submission.status.change"}
        self._emit(fields | {"participant_id": submission.participant, "status": submission.status})

    def _emit_study(self, document: dict[str, Any]) -> None:
        self._emit(
            {
                "resource_id": document["id"],
                "event_type": "study.status.change",
                "metadata": {},
                "status": document["status"],
            }
        )

    def _emit(self, fields: dict[str, Any]) -> None:
        self.events.append(Event(self.new_id(), json.dumps(fields).encode()))

    def deliveries(self, rng: random.Random, times: int = 13) -> list[tuple[dict[str, str], bytes]]:
        """Return headers and body of all events so far, each repeated `times` times, in random order."""
        events = [event for event in self.events for _ in range(times)]
        rng.shuffle(events)
        return [(self.headers(event), event.body) for event in events]

    @staticmethod
    def headers(event: Event, secret: str = SECRET, at: float | None = None) -> dict[str, str]:
        timestamp = str(int(time.time() if at is None else at))
        signature = hmac.new(secret.encode(), timestamp.encode() + event.body, hashlib.sha256).digest()
        return {
            "Content-Type": "application/json",
            "X-Event-ID": event.id,
            "X-Timestamp": timestamp,
            "X-Prolific-Request-Timestamp": timestamp,
            "X-Prolific-Request-Signature": base64.b64encode(signature).decode(),
        }

    # API

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any, dict[str, str]]:
        """Return status, document, and headers. Raises Refused."""
        with self.lock:
            self.requests.append(Request(method, path, body))
            if faults := faults_of_request(method, path, query, body):
                self.violations += faults
                raise Refused(400, faults)
            parts = path.strip("/").split("/")
            match method, *parts:
                case ["GET", ".well-known", "study", "jwks.json"]:
                    public = self.key.as_dict(private=False)
                    return 200, {"keys": [public | {"key_ops": ["verify"]}]}, {}
                case [_, "api", "v1", "studies", *rest]:
                    return self._studies(method, rest, body)
                case ["POST", "api", "v1", "study-cost-calculator"]:
                    cost = round(body["reward"] * body["total_available_places"] * (1 + FEE))
                    return 200, {"total_cost": cost}, {}
                case ["GET", "api", "v1", "submissions"]:
                    return 200, {"results": self._page(query)}, {}
                case [_, "api", "v1", "submissions", *rest]:
                    return self._submissions(method, rest, body)
                case ["POST", "api", "v1", "bulk-bonus-payments", bonus, "pay"]:
                    return self._pay_bonus(bonus)
                case [_, "api", "v1", "hooks", "subscriptions", *rest]:
                    return self._hooks(method, rest, body)
        raise Refused(404, "Not found")

    def _studies(self, method: str, rest: list[str], body: Any) -> tuple[int, Any, dict[str, str]]:
        if not rest:
            if method == "POST":
                study = self.new_id()
                self.studies[study] = {"id": study, "status": "UNPUBLISHED", **body}
                return 201, self.studies[study], {}
            names = ("id", "name", "internal_name", "status")
            rows = [{name: study[name] for name in names} for study in self.studies.values()]
            return 200, {"results": rows}, {}
        document = self.studies.get(rest[0])
        if document is None:
            raise Refused(404, f"There is no study {rest[0]}")
        if rest[1:] == ["transition"]:
            self._move_study(document, body["action"])
        elif method == "PATCH":
            if document["status"] != "UNPUBLISHED":
                raise Refused(400, "A published study cannot be changed so")
            document.update(body)
        return 200, document, {}

    def _move_study(self, document: dict[str, Any], action: str) -> None:
        status = TRANSITIONS.get((document["status"], action))
        if status is None:
            raise Refused(400, f"{action} is not for a study that is {document['status']}")
        cost = round(document["reward"] * document["total_available_places"] * (1 + FEE))
        if action == "PUBLISH" and cost > self.wallet:
            raise Refused(400, {"wallet": ["There are not enough funds in the workspace."]})
        document["status"] = status
        self._emit_study(document)

    def _page(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        page, size = int(query.get("page", ["1"])[0]), int(query.get("page_size", ["20"])[0])
        rows = sorted(self.submissions.values(), key=lambda submission: (submission.started_at, submission.id))
        rows = [row for row in rows if row.study_id == query["study"][0]][(page - 1) * size : page * size]
        if not rows and page > 1:
            raise Refused(404, "Invalid page")
        return [
            {
                "id": row.id,
                "participant_id": row.participant,
                "status": row.status,
                "has_siblings": False,
                "study_code": row.code,
                **row.times,
            }
            for row in rows
        ]

    def _submissions(self, method: str, rest: list[str], body: Any) -> tuple[int, Any, dict[str, str]]:
        if rest == ["bulk-approve"]:
            for name in body["submission_ids"]:
                self._approve(self._submission(name))
            return 200, "The request to bulk approve has been made successfully.", {}
        if rest == ["bonus-payments"]:
            return self._set_up_bonus(body)
        submission = self._submission(rest[0])
        if rest[1:] == ["request-return"]:
            submission.return_requested = datetime.now(UTC)
            answer = {name: getattr(submission, name) for name in ("id", "status", "participant")}
            return 200, answer | {"return_requested": submission.times["return_requested"]}, {}
        if rest[1:] == ["transition"]:
            self._move_submission(submission, body)
        return 200, self._detail(submission), {}

    def _submission(self, name: str) -> Submission:
        if name not in self.submissions:
            raise Refused(404, f"There is no submission {name}")
        return self.submissions[name]

    def _detail(self, submission: Submission) -> dict[str, Any]:
        return {
            "id": submission.id,
            "status": submission.status,
            "study_id": submission.study_id,
            "participant": submission.participant,
            "entered_code": submission.code,
            "bonus_payments": list(submission.bonuses),
            **submission.times,
        }

    def _move_submission(self, submission: Submission, body: dict[str, Any]) -> None:
        target = {"APPROVE": "APPROVED", "REJECT": "REJECTED", "SCREEN_OUT": "SCREENED OUT"}[body["action"]]
        if submission.status == target:  # a repeated request has no effect
            return
        source_statuses = {"APPROVED": {"AWAITING REVIEW", "TIMED-OUT"}, "REJECTED": {"AWAITING REVIEW"}}
        if submission.status not in source_statuses.get(target, {"ACTIVE", "AWAITING REVIEW"}):
            raise Refused(400, f"Submission {submission.id} is {submission.status}")
        if target == "APPROVED":
            self._approve(submission)
        else:
            self._move(submission, target)

    def _set_up_bonus(self, body: dict[str, Any]) -> tuple[int, Any, dict[str, str]]:
        lines = [line.split(",") for line in body["csv_bonuses"].split()]
        names_of_study = {name for name, row in self.submissions.items() if row.study_id == body["study_id"]}
        if unknown := [name for name, _ in lines if name not in names_of_study]:
            raise Refused(400, {"csv_bonuses": [f"{name} has not taken part in the study" for name in unknown]})
        bonus, amounts = self.new_id(), [round(100 * float(amount)) for _, amount in lines]
        self._bonuses[bonus] = [(name, amount) for (name, _), amount in zip(lines, amounts, strict=True)]
        total = round(sum(amounts) * (1 + FEE))
        return 201, {"id": bonus, "study": body["study_id"], "amount": sum(amounts), "total_amount": total}, {}

    def _pay_bonus(self, bonus: str) -> tuple[int, Any, dict[str, str]]:
        """Pay once per request, like Prolific, without deduplication."""
        if bonus not in self._bonuses:
            raise Refused(404, "There is no such bonus")
        for name, amount in self._bonuses[bonus]:
            self.submissions[name].bonuses.append(amount)
            self.wallet -= round(amount * (1 + FEE))
        return 202, "Bonuses are being paid.", {}

    def _hooks(self, method: str, rest: list[str], body: Any) -> tuple[int, Any, dict[str, str]]:
        if method == "GET":
            return 200, {"results": list(self.subscriptions.values())}, {}
        if not rest:
            name = self.new_id()
            self.subscriptions[name] = {"id": name, **body, "is_enabled": False}
            self._hook_secrets[name] = f"hook-{name}"
            return 201, self.subscriptions[name], {"X-Hook-Secret": self._hook_secrets[name]}
        if self._hook_secrets.get(rest[0]) != body["secret"]:
            raise Refused(400, "The secret is another one")
        self.subscriptions[rest[0]]["is_enabled"] = True
        return 200, self.subscriptions[rest[0]], {}


# HTTP


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise the body waits up to 40 ms for the acknowledgment of the headers
    fake: FakeProlific

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        trouble = self.fake.trouble(self.command, parts.path)
        if trouble == Trouble.LOST:
            self.close_connection = True
            return
        if trouble in (Trouble.BUSY, Trouble.DOWN):
            self._send(
                int(trouble.value), {"error": {"status": int(trouble.value), "title": "Later"}}, {"Retry-After": "0"}
            )
            return
        try:
            if self.headers.get("Authorization") != f"Token {TOKEN}":
                raise Refused(401, "Invalid token.")
            body = json.loads(content) if content else None
            status, document, headers = self.fake.answer(self.command, parts.path, parse_qs(parts.query), body)
            check_answer(self.command, parts.path, document)
        except Refused as refusal:
            error = {"status": refusal.status, "error_code": 140000, "title": "Bad request", "detail": refusal.detail}
            status, document, headers = refusal.status, {"error": error}, {}
        if trouble == Trouble.UNANSWERED:
            self.close_connection = True
            return
        self._send(status, document, headers)

    def _send(self, status: int, document: Any, headers: dict[str, str]) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Type": "application/json", "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = _handle

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def serving(fake: FakeProlific | None = None, port: int = 0) -> Iterator[FakeProlific]:
    """Serve the fake on loopback. `fake.url` is the value for KGHARVEST_PROLIFIC_URL."""
    fake = fake or FakeProlific()
    server = ThreadingHTTPServer(("127.0.0.1", port), type("OfFake", (Handler,), {"fake": fake}))
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=[POLL_INTERVAL_S], daemon=True).start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
