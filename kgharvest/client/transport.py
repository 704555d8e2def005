"""HTTP transport with retries. Retries are safe because POST requests have an idempotency key."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import httpx

from kgharvest.client.errors import ServerUnavailable, error_of

API = "/api/v1/"
TIMEOUT_S = 60.0
TRIES = 5
LONGEST_PAUSE_S = 60.0
RETRIED = {429, 502, 503, 504}
KEY = "Idempotency-Key"
Row = dict[str, Any]


class Transport:
    """Connection to one server with one token.

    The pause between attempts doubles each time, unless `Retry-After` sets it.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        tries: int = TRIES,
        pause: Callable[[float], None] = time.sleep,
    ):
        url = url or os.environ.get("KGHARVEST_URL") or "http://127.0.0.1:8000"
        token = token or os.environ.get("KGHARVEST_TOKEN")
        if not token:
            raise ValueError("The token is missing. Pass `token` or set KGHARVEST_TOKEN.")
        self.base = url.rstrip("/") + API
        self._tries, self._pause = tries, pause
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._http = httpx.Client(headers=headers, timeout=timeout_s)

    def close(self) -> None:
        self._http.close()

    def address(self, path: str) -> str:
        """Return the URL of an API path. URLs from responses are returned unchanged."""
        if not path.startswith(("http://", "https://")):
            return self.base + path
        if not path.startswith(self.base):
            raise ValueError(f"{path} is not below {self.base}. The token is sent only to this server.")
        return path

    def request(self, method: str, path: str, **options: Any) -> Any:
        """Return the JSON of a response, None if it is empty, or the bytes of a file. Raises ApiError.

        path: path below /api/v1/. options: httpx options: params, json, data, files, headers.
        """
        with self.answer(method, path, **options) as response:
            response.read()
            if response.status_code == 204 or not response.content:
                return None
            is_json = response.headers.get("content-type", "").startswith("application/json")
            return response.json() if is_json else response.content

    def json_lines(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[Row]:
        """Yield the rows of a streamed JSON Lines response. Raises ApiError."""
        headers = {"Accept": "application/x-ndjson"}
        with self.answer("GET", path, params=params, headers=headers) as response:
            for line in response.iter_lines():
                if line:
                    yield json.loads(line)

    @contextmanager
    def answer(self, method: str, path: str, **options: Any) -> Iterator[httpx.Response]:
        """Send a request and yield its streamed response. Raises ApiError."""
        headers = dict(options.pop("headers", None) or {})
        if method == "POST":
            headers.setdefault(KEY, str(uuid4()))  # all attempts use the same key
        response = self._send(method, self.address(path), headers=headers, **options)
        try:
            if response.is_error:
                response.read()
                raise error_of(response)
            yield response
        finally:
            response.close()

    def _send(self, method: str, url: str, **options: Any) -> httpx.Response:
        for n_left in reversed(range(self._tries)):
            pause_s = min(2.0 ** (self._tries - n_left - 2), LONGEST_PAUSE_S)
            for part in (options.get("files") or {}).values():
                file = part[1] if isinstance(part, tuple) else part
                if hasattr(file, "seek"):
                    file.seek(0)
            try:
                response = self._http.send(self._http.build_request(method, url, **options), stream=True)
            except httpx.TransportError as error:
                if not n_left:
                    reason = f"{url} does not respond ({error}). Check that the server is running."
                    raise ServerUnavailable(reason) from error
            else:
                if response.status_code not in RETRIED or not n_left:
                    return response
                retry_after = response.headers.get("retry-after", "")
                pause_s = (retry_after.isdecimal() and min(float(retry_after), LONGEST_PAUSE_S)) or pause_s
                response.close()
            self._pause(pause_s)
        raise AssertionError("tries must be at least 1")
