"""The API for Python programs: `from kgharvest.client import Client`. docs/api.md begins with a whole study.

It needs httpx alone, loads neither Django nor torch, and shows progress where tqdm, gives frames where pandas is there.
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
