"""An MTurk of our own, to which the real client of boto3 talks over HTTP: it keeps HITs, assignments, payments, money.

What is asked and what is answered is held against botocore's model of MTurk's API: names, types, lengths, patterns.
What the model does not say is as MTurk's documentation has it
(https://docs.aws.amazon.com/AWSMechTurk/latest/AWSMturkAPI/).
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Lock, Thread
from typing import Any

import boto3
from botocore.validate import ParamValidator

SERVICE = boto3.session.Session().client("mturk", region_name="us-east-1").meta.service_model
THROTTLED = ("ThrottlingException", 400)
FAILED = ("ServiceFault", 500)
HANGS_UP = ("hangs up", 0)  # does what was asked and does not answer


class Refused(Exception):
    def __init__(self, message: str, code: str):
        super().__init__(message)
        self.code = code


class FakeMTurk:
    """MTurk's side. balance: in dollars. faults: what the next requests meet, by operation. asked: each request."""

    def __init__(self, balance: str = "10000.00"):
        self.balance = Decimal(balance)
        self.hits: dict[str, dict[str, Any]] = {}
        self.assignments: dict[str, dict[str, Any]] = {}
        self.bonuses: list[dict[str, Any]] = []
        self.faults: dict[str, list[tuple[str, int]]] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._tokens: set[str] = set()
        self._numbers, self._lock = count(1), Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))

    def __enter__(self) -> FakeMTurk:
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *reasons) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def n_asked(self, operation: str) -> int:
        return sum(name == operation for name, _ in self.asked)

    # -- what people do at MTurk ---------------------------------------------------------------------------------------

    def submit(self, hit_id: str, worker: str, assignment: str) -> None:
        """Let a worker submit an assignment that they accepted; MTurk takes any form that has its id."""
        now, hit = datetime.now(UTC), self.hits[hit_id]
        self.assignments[assignment] = {
            "AssignmentId": assignment,
            "WorkerId": worker,
            "HITId": hit_id,
            "AssignmentStatus": "Submitted",
            "AcceptTime": now,
            "SubmitTime": now,
            "AutoApprovalTime": now + timedelta(seconds=hit["AutoApprovalDelayInSeconds"]),
        }

    # -- what the API does ---------------------------------------------------------------------------------------------

    def answer(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            model = SERVICE.operation_model(operation)
            _check(model.input_shape, parameters)
            self.asked.append((operation, parameters))
            result = getattr(self, f"_{operation}")(**parameters)
            _check(model.output_shape, result)
            return result

    def _once(self, token: str | None) -> None:
        if token in self._tokens:
            raise Refused(f"A request with this token was made before: {token}", "AWS.MechanicalTurk.DuplicateRequest")
        if token:
            self._tokens.add(token)

    def _pay(self, amount: str, percent: int = 20) -> None:
        cost = Decimal(amount) * (100 + percent) / 100
        if cost > self.balance:
            raise Refused("The account has not enough funds.", "AWS.MechanicalTurk.InsufficientFunds")
        self.balance -= cost

    def _GetAccountBalance(self) -> dict[str, Any]:
        return {"AvailableBalance": f"{self.balance:.2f}"}

    def _CreateHIT(self, UniqueRequestToken: str | None = None, **hit: Any) -> dict[str, Any]:
        self._once(UniqueRequestToken)
        hit_id = f"3HIT{next(self._numbers):026}"
        until = datetime.now(UTC) + timedelta(seconds=hit.pop("LifetimeInSeconds"))
        self.hits[hit_id] = {"HITId": hit_id, "Expiration": until, "HITStatus": "Assignable", **hit}
        return {"HIT": self.hits[hit_id]}

    def _ListHITs(self, **page: Any) -> dict[str, Any]:
        return _page("HITs", list(self.hits.values()), **page)

    def _GetHIT(self, HITId: str) -> dict[str, Any]:
        return {"HIT": self._hit(HITId)}

    def _hit(self, hit_id: str) -> dict[str, Any]:
        if hit_id not in self.hits:
            raise Refused(f"Hit {hit_id} does not exist.", "AWS.MechanicalTurk.HITDoesNotExist")
        return self.hits[hit_id]

    def _UpdateExpirationForHIT(self, HITId: str, ExpireAt: float) -> dict[str, Any]:
        self._hit(HITId)["Expiration"] = datetime.fromtimestamp(ExpireAt, UTC)
        return {}

    def _CreateAdditionalAssignmentsForHIT(
        self, HITId: str, NumberOfAdditionalAssignments: int, UniqueRequestToken: str | None = None
    ) -> dict[str, Any]:
        self._once(UniqueRequestToken)
        hit = self._hit(HITId)
        if hit["MaxAssignments"] < 10 <= hit["MaxAssignments"] + NumberOfAdditionalAssignments:
            raise Refused("Not to 10 or more.", "AWS.MechanicalTurk.InvalidMaximumAssignmentsIncrease")
        hit["MaxAssignments"] += NumberOfAdditionalAssignments
        return {}

    def _ListAssignmentsForHIT(self, HITId: str, **page: Any) -> dict[str, Any]:
        rows = [row for row in self.assignments.values() if row["HITId"] == self._hit(HITId)["HITId"]]
        return _page("Assignments", rows, **page)

    def _assignment(self, assignment_id: str, *statuses: str) -> dict[str, Any]:
        if assignment_id not in self.assignments:
            raise Refused(f"Assignment {assignment_id} does not exist.", "AWS.MechanicalTurk.AssignmentDoesNotExist")
        assignment = self.assignments[assignment_id]
        if statuses and assignment["AssignmentStatus"] not in statuses:
            wanted = ",".join(statuses)
            raise Refused(
                f"This operation can be called with a status of: {wanted}", "AWS.MechanicalTurk.InvalidAssignmentState"
            )
        return assignment

    def _GetAssignment(self, AssignmentId: str) -> dict[str, Any]:
        return {"Assignment": self._assignment(AssignmentId)}

    def _ApproveAssignment(
        self, AssignmentId: str, RequesterFeedback: str = "", OverrideRejection: bool = False
    ) -> dict[str, Any]:
        assignment = self._assignment(AssignmentId, *["Submitted", "Rejected"][: 1 + OverrideRejection])
        hit = self.hits[assignment["HITId"]]
        self._pay(hit["Reward"], 40 if hit["MaxAssignments"] >= 10 else 20)
        assignment |= {"AssignmentStatus": "Approved", "ApprovalTime": datetime.now(UTC)}
        return {}

    def _RejectAssignment(self, AssignmentId: str, RequesterFeedback: str) -> dict[str, Any]:
        assignment = self._assignment(AssignmentId, "Submitted")
        assignment |= {
            "AssignmentStatus": "Rejected",
            "RejectionTime": datetime.now(UTC),
            "RequesterFeedback": RequesterFeedback,
        }
        return {}

    def _SendBonus(
        self, WorkerId: str, BonusAmount: str, AssignmentId: str, Reason: str, UniqueRequestToken: str | None = None
    ) -> dict[str, Any]:
        self._once(UniqueRequestToken)
        if self._assignment(AssignmentId)["WorkerId"] != WorkerId:
            raise Refused("This worker has not done the assignment.", "AWS.MechanicalTurk.WorkerDoesNotExist")
        self._pay(BonusAmount)
        self.bonuses.append(
            {
                "WorkerId": WorkerId,
                "BonusAmount": BonusAmount,
                "AssignmentId": AssignmentId,
                "Reason": Reason,
                "GrantTime": datetime.now(UTC),
            }
        )
        return {}

    def _ListBonusPayments(self, HITId: str = "", AssignmentId: str = "", **page: Any) -> dict[str, Any]:
        of_hit = {pk for pk, row in self.assignments.items() if row["HITId"] == HITId or pk == AssignmentId}
        return _page("BonusPayments", [row for row in self.bonuses if row["AssignmentId"] in of_hit], **page)


def _page(name: str, rows: list[dict[str, Any]], MaxResults: int = 10, NextToken: str = "0") -> dict[str, Any]:
    start = int(NextToken)
    more = {"NextToken": str(start + MaxResults)} if start + MaxResults < len(rows) else {}
    shown = rows[start : start + MaxResults]
    return {name: shown, "NumResults": len(shown), **more}


# -- botocore's model --------------------------------------------------------------------------------------------------


def _check(shape, value: Any) -> None:
    """Raise Refused where a value is not of its shape in botocore's model, lengths and patterns included."""
    report = ParamValidator().validate(value, shape)
    wrong = [report.generate_report()] if report.has_errors() else list(_not_as_stated(shape, value))
    if wrong:
        raise Refused("; ".join(wrong), "AWS.MechanicalTurk.ParameterValidationError")


def _not_as_stated(shape, value: Any):
    if shape.type_name == "structure":
        for name, part in value.items():
            yield from _not_as_stated(shape.members[name], part)
    elif shape.type_name == "list":
        for part in value:
            yield from _not_as_stated(shape.member, part)
    elif shape.type_name == "string":
        stated = shape.metadata
        if not stated.get("min", 0) <= len(value) <= stated.get("max", 1 << 16):
            yield f"{shape.name} has {len(value)} characters"
        if not re.search(stated.get("pattern", ""), value) or (shape.enum and value not in shape.enum):
            yield f"{shape.name} is {value!r}"


def _handler_of(turk: FakeMTurk) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            prefix, _, operation = self.headers["X-Amz-Target"].partition(".")
            parameters = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert prefix == SERVICE.metadata["targetPrefix"]
            assert self.headers["Authorization"].startswith("AWS4-HMAC-SHA256 ")
            fault = (turk.faults.get(operation) or [None]).pop(0)
            if fault in (THROTTLED, FAILED):
                self._reply(fault[1], {"__type": fault[0], "Message": "Not now."})
                return
            try:
                status, body = 200, turk.answer(operation, parameters)
            except Refused as refusal:
                body = {"__type": "RequestError", "Message": str(refusal), "TurkErrorCode": refusal.code}
                status = 400
            if fault == HANGS_UP:
                self.close_connection = True
                return
            self._reply(status, body)

        def _reply(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body, default=lambda moment: moment.timestamp()).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments) -> None:
            """Nothing is written to the terminal of the tests."""

    return Handler
