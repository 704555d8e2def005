"""Client for the parts of Prolific's API that panels need, with timeouts and safe retries.

Reference: docs.prolific.com/api-reference; api_fields.py in the tests lists the fields that are used. Prolific has no
fixed rate limit. Status 429 means that the workspace's wallet is busy; requests are therefore sent one after another. A
retry waits for the time stated in the response. If the response does not state a time, the wait doubles with each
attempt.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from django.conf import settings

from kgharvest.contrib.recruiting.platforms import OutcomeUnknown, PlatformRefused, PlatformUnavailable

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 20.0
MOST_TRIES = 3
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 10.0  # if a longer wait is required, the job retries later instead
LATER = {408, 425, 429, 500, 502, 503, 504}
ROWS_PER_PAGE = 100
IDENTIFIER = re.compile(r"\b[0-9a-f]{24}\b")  # Prolific's ids of participants, studies, and submissions

Document = dict[str, Any]


@cache
def ssl_context() -> ssl.SSLContext:
    """Return the SSL context of this process. Loading it takes longer than a request."""
    import httpx

    return httpx.create_ssl_context()


class Client:
    """Prolific API client of one account. Errors and logs contain no ids of participants or submissions."""

    def __init__(self, *, sleep: Callable[[float], None] = time.sleep):
        import httpx

        self._sleep = sleep
        if not settings.PROLIFIC["token"]:
            raise PlatformRefused("Prolific token missing. Set KGHARVEST_PROLIFIC_TOKEN.")
        self._http = httpx.Client(
            base_url=settings.PROLIFIC["url"],
            headers={"Authorization": f"Token {settings.PROLIFIC['token']}"},
            timeout=TIMEOUT_S,
            verify=ssl_context(),
        )

    def studies(self) -> list[Document]:
        return self._ask("GET", "/api/v1/studies/")["results"]

    def study(self, study: str) -> Document:
        return self._ask("GET", f"/api/v1/studies/{study}/")

    def create_study(self, document: Document) -> Document:
        """Create a draft. The request is never retried.

        If there is no answer, look up the draft by its internal name.
        """
        return self._ask("POST", "/api/v1/studies/", document, is_safe_twice=False)

    def update_study(self, study: str, document: Document) -> Document:
        return self._ask("PATCH", f"/api/v1/studies/{study}/", document)

    def move_study(self, study: str, action: str) -> Document:
        return self._ask("POST", f"/api/v1/studies/{study}/transition/", {"action": action})

    def cost(self, reward: int, places: int) -> int:
        """Return the total cost including the fee and tax, in minor units."""
        body = {"reward": reward, "total_available_places": places}
        return round(self._ask("POST", "/api/v1/study-cost-calculator/", body)["total_cost"])

    def submissions(self, study: str) -> Iterator[tuple[Document, datetime]]:
        """Yield each submission of a study with the time of the request that returned it."""
        page, n_rows = 1, ROWS_PER_PAGE
        while n_rows == ROWS_PER_PAGE:
            asked_at = datetime.now(UTC)
            query = {"study": study, "page": page, "page_size": ROWS_PER_PAGE, "ordering": "started_at"}
            answer = self._ask("GET", "/api/v1/submissions/", query=query, is_missing_none=page > 1)
            rows = answer["results"] if answer else []
            yield from ((row, asked_at) for row in rows)
            page, n_rows = page + 1, len(rows)

    def submission(self, submission: str) -> Document | None:
        """Return the submission with its bonuses, or None if Prolific does not have it."""
        return self._ask("GET", f"/api/v1/submissions/{submission}/", is_missing_none=True)

    def move_submission(self, submission: str, action: str, **fields: Any) -> None:
        """Change the status of a submission. Idempotent."""
        self._ask("POST", f"/api/v1/submissions/{submission}/transition/", {"action": action, **fields})

    def request_return(self, submission: str, reason: str) -> None:
        self._ask("POST", f"/api/v1/submissions/{submission}/request-return/", {"request_return_reasons": [reason]})

    def approve_all(self, submissions: Sequence[str]) -> None:
        """Start the approval of at most 1,000 submissions.

        Prolific approves them in the background; query their statuses for the result.
        """
        self._answer("POST", "/api/v1/submissions/bulk-approve/", {"submission_ids": list(submissions)})

    def set_up_bonus(self, study: str, submission: str, amount: int) -> Document:
        """Prepare a bonus of `amount` minor units. Nothing is paid until `pay_bonus` is called with the bonus id."""
        body = {"study_id": study, "csv_bonuses": f"{submission},{amount // 100}.{amount % 100:02}"}
        return self._ask("POST", "/api/v1/submissions/bonus-payments/", body)

    def pay_bonus(self, bonus: str) -> None:
        """Pay a prepared bonus. The request is never retried, because Prolific pays again on each request.

        Raises OutcomeUnknown if the bonus may have been paid.
        """
        try:
            self._answer("POST", f"/api/v1/bulk-bonus-payments/{bonus}/pay/", is_safe_twice=False)
        except _Unanswered as error:
            raise OutcomeUnknown("Prolific did not confirm this bonus payment. It is not retried.") from error

    def subscriptions(self, workspace: str) -> list[Document]:
        return self._ask("GET", "/api/v1/hooks/subscriptions/", query={"workspace_id": workspace})["results"]

    def subscribe(self, workspace: str, event_type: str, address: str) -> str:
        """Subscribe a URL to events of a type, and confirm the subscription. Return the subscription's id."""
        body = {"workspace_id": workspace, "event_type": event_type, "target_url": address}
        answer = self._answer("POST", "/api/v1/hooks/subscriptions/", body)
        subscription, secret = answer.json()["id"], answer.headers["X-Hook-Secret"]
        self._ask("POST", f"/api/v1/hooks/subscriptions/{subscription}/", {"secret": secret})
        return subscription

    def keys(self) -> Document:
        """Return the public keys for entry tokens as a JSON Web Key Set."""
        return self._ask("GET", "/.well-known/study/jwks.json")

    def _ask(self, method: str, path: str, body: Document | None = None, **options: Any) -> Any:
        """Return the JSON of the response, or None if it is empty or has status 404. options: options of `_answer`."""
        answer = self._answer(method, path, body, **options)
        try:
            return answer.json() if answer.content and answer.status_code != 404 else None
        except ValueError:
            raise PlatformUnavailable("Prolific's response is not JSON. Check KGHARVEST_PROLIFIC_URL.") from None

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
        """Return a successful response, or a response with status 404 if `is_missing_none`.

        is_safe_twice: True to retry the request even if it may have taken effect. Raises PlatformRefused or
        PlatformUnavailable. The subclass _Unanswered of PlatformUnavailable means that the request may have taken
        effect.
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
                raise PlatformRefused(f"Prolific rejected the request: {error_text(answer)}")
            return answer
        raise AssertionError("unreachable")

    def _exchange(self, method: str, path: str, body: Document | None, query: Document | None) -> httpx.Response:
        import httpx

        try:
            answer = self._http.request(method, path, json=body, params=query)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout):
            raise PlatformUnavailable("Prolific is unreachable. The request is retried later.") from None
        except httpx.HTTPError:
            raise _Unanswered(f"Prolific did not answer in {TIMEOUT_S:g} s. The request is retried later.") from None
        if answer.status_code == 429:  # Prolific rejected the request before it had any effect
            raise PlatformUnavailable("Prolific is busy (429). The request is retried later.", retry_after_s(answer))
        if answer.status_code in LATER:
            sentence = f"Prolific failed ({answer.status_code}). The request is retried later."
            raise _Unanswered(sentence, retry_after_s(answer))
        return answer


class _Unanswered(PlatformUnavailable):
    """The request failed but may have taken effect."""


def retry_after_s(answer: httpx.Response) -> float | None:
    """Return the Retry-After header, a number or a date, in seconds. Return None if it is missing or malformed."""
    text = answer.headers.get("Retry-After", "")
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


def error_text(answer: httpx.Response) -> str:
    """Return the reason stated in an error response, on one line, without ids of participants and submissions."""
    if answer.status_code in (401, 403):
        return f"the token lacks permission ({answer.status_code}). Check KGHARVEST_PROLIFIC_TOKEN."
    if answer.is_redirect:  # redirects are not followed, so that the token is not sent to another host
        return f"the URL redirects to another one ({answer.status_code}). Check KGHARVEST_PROLIFIC_URL."
    try:
        error = answer.json()["error"]
        detail = error.get("detail") or error.get("title") or ""
    except (ValueError, LookupError, TypeError, AttributeError):
        detail = ""
    text = " ".join(_flat(detail)) or f"status {answer.status_code}"
    return IDENTIFIER.sub("[id]", " ".join(text.split()))[:300]


def _flat(detail: Any) -> Iterator[str]:
    """Yield the texts in an error detail, which is a text, a list of texts, or lists of texts by field name."""
    if isinstance(detail, dict):
        for name, texts in detail.items():
            yield f"{name}:"
            yield from _flat(texts)
    elif isinstance(detail, list):
        for text in detail:
            yield from _flat(text)
    else:
        yield str(detail)
