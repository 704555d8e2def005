"""Exceptions for API errors, with the message of the server, and for unreachable servers."""

from collections.abc import Mapping
from typing import Any

import httpx


class ApiError(Exception):
    """Raised for an error response of the API. `str(error)` is the server's message.

    status: HTTP status. code: error code. fields: errors by field if the input is invalid.
    """

    def __init__(self, message: str, status: int = 0, code: str = "", fields: Mapping[str, Any] | None = None):
        self.status, self.code, self.fields = status, code, dict(fields or {})
        super().__init__(message)


class Invalid(ApiError):
    """Invalid input (400)."""


class Unauthorized(ApiError):
    """Missing, unknown, expired, or revoked token (401)."""


class NotAllowed(ApiError):
    """The token's scope or the user's role does not permit the request (403)."""


class NotFound(ApiError):
    """The object does not exist or is not visible to the user (404)."""


class Conflict(ApiError):
    """Violation of a domain rule (409), identified by `code`."""


class TooManyRequests(ApiError):
    """Rate limit still exceeded after all attempts (429)."""


class ServerUnavailable(ApiError):
    """No response, or status 502 to 504, after all attempts."""


class JobFailed(ApiError):
    """The job failed or was canceled. `str(error)` is the job's error message."""


BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    429: TooManyRequests,
    **dict.fromkeys((502, 503, 504), ServerUnavailable),
}


def error_of(response: httpx.Response) -> ApiError:
    """Return the exception for an error response. The response must have been read completely."""
    kind = BY_STATUS.get(response.status_code, ApiError)
    try:
        error = response.json()["error"]
        message, code, fields = error["message"], error["code"], error.get("fields")
    except (ValueError, KeyError, TypeError):  # the body is a proxy's error page instead of an API response
        return kind(f"The server returned {response.status_code} {response.reason_phrase}.", response.status_code)
    if fields:
        lists = {name: reasons if isinstance(reasons, list) else [reasons] for name, reasons in fields.items()}
        message += " " + "; ".join(f"{name}: {' '.join(map(str, reasons))}" for name, reasons in lists.items())
    return kind(message, response.status_code, code, fields)
