"""What the server refuses, and that it cannot be reached, as exceptions that say it in the server's sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx


class ApiError(Exception):
    """What the API refuses. `str(error)` is the server's sentence.

    status: of HTTP. code: one word for each kind of refusal. fields: of invalid input, what is wrong with each field.
    """

    def __init__(self, message: str, status: int = 0, code: str = "", fields: Mapping[str, Any] | None = None):
        self.status, self.code, self.fields = status, code, dict(fields or {})
        super().__init__(message)


class Invalid(ApiError):
    """Input that is not valid (400)."""


class Unauthorized(ApiError):
    """No token, or one that is unknown, expired or revoked (401)."""


class NotAllowed(ApiError):
    """What the token's scope or the user's role does not allow (403)."""


class NotFound(ApiError):
    """Nothing that there is, or that the user may see (404)."""


class Conflict(ApiError):
    """A rule of the domain says no (409); `code` names it."""


class TooManyRequests(ApiError):
    """Still too many requests, after as many tries as the client makes (429)."""


class ServerUnavailable(ApiError):
    """No answer, or 502 to 504, after as many tries as the client makes."""


class JobFailed(ApiError):
    """A job that was waited for failed or was cancelled; `str(error)` is what it says."""


BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    429: TooManyRequests,
    502: ServerUnavailable,
    503: ServerUnavailable,
    504: ServerUnavailable,
}


def error_of(response: httpx.Response) -> ApiError:
    """Return the exception for an answer that is an error, read to its end."""
    kind = BY_STATUS.get(response.status_code, ApiError)
    try:
        error = response.json()["error"]
        message, code, fields = error["message"], error["code"], error.get("fields")
    except (ValueError, KeyError, TypeError):  # a proxy's page, not the API's answer
        return kind(f"The server answered {response.status_code} {response.reason_phrase}.", response.status_code)
    if fields:
        message += " " + "; ".join(f"{name}: {_sentence(reasons)}" for name, reasons in fields.items())
    return kind(message, response.status_code, code, fields)


def _sentence(reasons: Any) -> str:
    return " ".join(map(str, reasons)) if isinstance(reasons, list) else str(reasons)
