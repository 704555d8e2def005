"""Python client of the API: `from kgharvest.client import Client`. docs/api.md starts with a complete study.

Requires only httpx, not Django or torch. Uses tqdm for progress bars and pandas for data frames if installed.
"""

from kgharvest.client.errors import (
    ApiError,
    Conflict,
    Invalid,
    JobFailed,
    NotAllowed,
    NotFound,
    ServerUnavailable,
    TooManyRequests,
    Unauthorized,
)
from kgharvest.client.resources import Client, Resource, Rows

__all__ = [
    "ApiError",
    "Client",
    "Conflict",
    "Invalid",
    "JobFailed",
    "NotAllowed",
    "NotFound",
    "Resource",
    "Rows",
    "ServerUnavailable",
    "TooManyRequests",
    "Unauthorized",
]
