"""Prolific's API, as far as panels need it: requests with time limits, tried again where that does no harm.

docs.prolific.com/api-reference; api_fields.py beside the tests has the fields that are used. There is no fixed limit of
requests: 429 says that the workspace's wallet is busy, so requests go one after another and are repeated after a wait
that doubles, or as long as the answer asks for.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

import httpx
from django.conf import settings

from kgharvest.contrib.recruiting.platforms import OutcomeUnknown, PlatformRefused, PlatformUnavailable

TIMEOUT_S = 20.0
MOST_TRIES = 3
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 10.0  # a job that has waited longer comes back later instead
LATER = {408, 425, 429, 500, 502, 503, 504}
ROWS_PER_PAGE = 100
IDENTIFIER = re.compile(r"\b[0-9a-f]{24}\b")  # as Prolific names people, studies and submissions

Document = dict[str, Any]


@cache
def known_authorities() -> ssl.SSLContext:
    """Read once a process: that takes longer than a request, and each event and each payment has a client."""
    return httpx.create_ssl_context()


class Client:
    """Asks Prolific in the name of one account. Names of people and submissions are in no error and no log."""

    def __init__(self, *, sleep: Callable[[float], None] = time.sleep):
        self._sleep = sleep
        if not settings.PROLIFIC["token"]:
            raise PlatformRefused("This installation has no token for Prolific; let KGHARVEST_PROLIFIC_TOKEN be one.")
        self._http = httpx.Client(
            base_url=settings.PROLIFIC["url"],
            headers={"Authorization": f"Token {settings.PROLIFIC['token']}"},
            timeout=TIMEOUT_S,
            verify=known_authorities(),
        )

    def studies(self) -> list[Document]:
        return self._ask("GET", "/api/v1/studies/")["results"]

    def study(self, study: str) -> Document:
        return self._ask("GET", f"/api/v1/studies/{study}/")

    def create_study(self, document: Document) -> Document:
        """Make a draft. It is sent once: whoever gets no answer looks for it by its internal name."""
        return self._ask("POST", "/api/v1/studies/", document, is_safe_twice=False)

    def update_study(self, study: str, document: Document) -> Document:
        return self._ask("PATCH", f"/api/v1/studies/{study}/", document)

    def move_study(self, study: str, action: str) -> Document:
        return self._ask("POST", f"/api/v1/studies/{study}/transition/", {"action": action})

    def cost(self, reward: int, places: int) -> int:
        """Return what so many places cost with fee and tax, in minor units."""
        body = {"reward": reward, "total_available_places": places}
        return round(self._ask("POST", "/api/v1/study-cost-calculator/", body)["total_cost"])

    def submissions(self, study: str) -> Iterator[tuple[Document, datetime]]:
        """Yield each submission of a study, with the time at which it was asked for."""
        page, n_rows = 1, ROWS_PER_PAGE
        while n_rows == ROWS_PER_PAGE:
            asked_at = datetime.now(UTC)
            query = {"study": study, "page": page, "page_size": ROWS_PER_PAGE, "ordering": "started_at"}
            answer = self._ask("GET", "/api/v1/submissions/", query=query, is_missing_none=page > 1)
            rows = answer["results"] if answer else []
            yield from ((row, asked_at) for row in rows)
            page, n_rows = page + 1, len(rows)

    def submission(self, submission: str) -> Document | None:
        """Return the submission with its bonuses, None where Prolific knows no such one."""
        return self._ask("GET", f"/api/v1/submissions/{submission}/", is_missing_none=True)

    def move_submission(self, submission: str, action: str, **fields: Any) -> None:
        """Give a submission another status; asking twice is asking once."""
        self._ask("POST", f"/api/v1/submissions/{submission}/transition/", {"action": action, **fields})

    def request_return(self, submission: str, reason: str) -> None:
        self._ask("POST", f"/api/v1/submissions/{submission}/request-return/", {"request_return_reasons": [reason]})

    def approve_all(self, submissions: Sequence[str]) -> None:
        """Approve many, 1,000 at most. Prolific does it in the background: their status says when."""
        self._answer("POST", "/api/v1/submissions/bulk-approve/", {"submission_ids": list(submissions)})

    def set_up_bonus(self, study: str, submission: str, amount: int) -> Document:
        """Prepare a bonus of so many minor units. Nothing is paid until its id is given to `pay_bonus`."""
        body = {"study_id": study, "csv_bonuses": f"{submission},{amount // 100}.{amount % 100:02}"}
        return self._ask("POST", "/api/v1/submissions/bonus-payments/", body)

    def pay_bonus(self, bonus: str) -> None:
        """Pay what was set up. Prolific pays once more whenever it is asked once more, so this is sent once.

        Raises OutcomeUnknown where it may have been paid.
        """
        try:
            self._answer("POST", f"/api/v1/bulk-bonus-payments/{bonus}/pay/", is_safe_twice=False)
        except _Unanswered as error:
            raise OutcomeUnknown("Prolific did not say whether it pays this bonus; it is not sent again.") from error

    def subscriptions(self, workspace: str) -> list[Document]:
        return self._ask("GET", "/api/v1/hooks/subscriptions/", query={"workspace_id": workspace})["results"]

    def subscribe(self, workspace: str, event_type: str, address: str) -> str:
        """Have events of a type sent to an address, and confirm that; return the subscription's id."""
        body = {"workspace_id": workspace, "event_type": event_type, "target_url": address}
        answer = self._answer("POST", "/api/v1/hooks/subscriptions/", body)
        subscription, secret = answer.json()["id"], answer.headers["X-Hook-Secret"]
        self._ask("POST", f"/api/v1/hooks/subscriptions/{subscription}/", {"secret": secret})
        return subscription

    def keys(self) -> Document:
        """Return the public keys by which entry tokens are signed, as a JSON Web Key Set."""
        return self._ask("GET", "/.well-known/study/jwks.json")

    def _ask(self, method: str, path: str, body: Document | None = None, **how: Any) -> Any:
        """Return the answer's JSON, None where it is empty; how: as `_answer` takes it."""
        answer = self._answer(method, path, body, **how)
        try:
            return answer.json() if answer.content and answer.status_code != 404 else None
        except ValueError:
            raise PlatformUnavailable("Prolific's answer is no JSON; look at KGHARVEST_PROLIFIC_URL.") from None

    def _answer(
        self,
        method: str,
        path: str,
        body: Document | None = None,
        *,
        query: Document | None = None,
        is_safe_twice: bool = True,
        is_missing_none: bool = False,
    ) -> httpx.Response:
        """Return a successful answer. is_safe_twice: whether to repeat a request of which nobody knows what it did.

        Raises PlatformRefused, PlatformUnavailable; the latter's kind _Unanswered where it may have been done.
        """
        for n_tries in range(1, MOST_TRIES + 1):
            try:
                answer = self._exchange(method, path, body, query)
            except PlatformUnavailable as trouble:
                is_repeatable = is_safe_twice or not isinstance(trouble, _Unanswered)
                wait_s = min(FIRST_WAIT_S * 2 ** (n_tries - 1), LONGEST_WAIT_S)
                wait_s = wait_s if trouble.after_s is None else trouble.after_s
                if n_tries == MOST_TRIES or not is_repeatable or wait_s > LONGEST_WAIT_S:
                    raise
                self._sleep(wait_s)
                continue
            if not answer.is_success and not (answer.status_code == 404 and is_missing_none):
                raise PlatformRefused(f"Prolific refused: {what_it_says(answer)}")
            return answer
        raise AssertionError("unreachable")

    def _exchange(self, method: str, path: str, body: Document | None, query: Document | None) -> httpx.Response:
        try:
            answer = self._http.request(method, path, json=body, params=query)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout):
            raise PlatformUnavailable("Prolific cannot be reached; it is asked again later.") from None
        except httpx.HTTPError:
            raise _Unanswered(f"Prolific gave no answer within {TIMEOUT_S:g} s; it is asked again later.") from None
        if answer.status_code == 429:  # refused before anything was done
            raise PlatformUnavailable("Prolific is busy (429); it is asked again later.", wait_asked_for(answer))
        if answer.status_code in LATER:
            sentence = f"Prolific failed ({answer.status_code}); it is asked again later."
            raise _Unanswered(sentence, wait_asked_for(answer))
        return answer


class _Unanswered(PlatformUnavailable):
    """A request that may have been done all the same."""


def wait_asked_for(answer: httpx.Response) -> float | None:
    """Return the seconds of Retry-After, which may be a date; None where there is none that can be read."""
    text = answer.headers.get("Retry-After", "")
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


def what_it_says(answer: httpx.Response) -> str:
    """Return the reason of a refusal on one line, without the names of people and submissions."""
    if answer.status_code in (401, 403):
        return f"the token may not do this ({answer.status_code}); look at KGHARVEST_PROLIFIC_TOKEN."
    if answer.is_redirect:  # nothing was done, and a token is not sent elsewhere
        return f"this address leads to another one ({answer.status_code}); look at KGHARVEST_PROLIFIC_URL."
    try:
        error = answer.json()["error"]
        detail = error.get("detail") or error.get("title") or ""
    except (ValueError, LookupError, TypeError, AttributeError):
        detail = ""
    text = " ".join(_flat(detail)) or f"status {answer.status_code}"
    return IDENTIFIER.sub("[id]", " ".join(text.split()))[:300]


def _flat(detail: Any) -> Iterator[str]:
    """Yield the texts in a detail: a text, a list of them, or lists by the names of fields."""
    if isinstance(detail, dict):
        for name, texts in detail.items():
            yield f"{name}:"
            yield from _flat(texts)
    elif isinstance(detail, list):
        for text in detail:
            yield from _flat(text)
    else:
        yield str(detail)
