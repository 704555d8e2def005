"""Signed POST of one event to the resolved address, without redirects, in bounded time and memory."""

import base64
import hashlib
import hmac
import http.client
import socket
import ssl
from collections.abc import Sequence
from datetime import datetime
from threading import Timer
from typing import NamedTuple

from standardwebhooks.webhooks import Webhook

from kgharvest import VERSION
from kgharvest.webhooks.addresses import BadAddress, Target, resolve

CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 10  # for the whole exchange, even if the response arrives slowly


class Answer(NamedTuple):
    """Result of a POST. status: HTTP status; None without a response. error: a sentence; empty on success."""

    status: int | None
    error: str

    @property
    def is_success(self) -> bool:
        return not self.error


def headers_of(event: str, event_id: str, body: str, secrets: Sequence[str], now: datetime) -> dict[str, str]:
    """Return the headers of a request, with one signature for each secret (whsec_...). now: in UTC."""
    timestamp = str(int(now.timestamp()))
    return {
        "Content-Type": "application/json",
        "User-Agent": f"kgharvest/{VERSION}",
        "webhook-id": event_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(Webhook(_key(secret)).sign(event_id, now, body) for secret in secrets),
        # Deprecated: for receivers that predate the Standard Webhooks headers.
        "X-Kgharvest-Event": event,
        "X-Kgharvest-Event-Id": event_id,
        "X-Kgharvest-Timestamp": timestamp,
        "X-Kgharvest-Signature": ",".join(
            f"sha256={hmac.new(secret.encode(), f'{timestamp}.{body}'.encode(), hashlib.sha256).hexdigest()}"
            for secret in secrets
        ),
    }


def _key(secret: str) -> bytes:
    """Decode a secret. Older secrets are unpadded, URL-safe base64."""
    return base64.b64decode(secret.removeprefix("whsec_").replace("-", "+").replace("_", "/") + "==")


def post(url: str, body: bytes, headers: dict[str, str]) -> Answer:
    """Send `body` once; any 2xx is a success. Raises nothing, whatever the receiver does."""
    try:
        return _exchange(resolve(url), body, headers)
    except BadAddress as refusal:
        return Answer(None, str(refusal))
    except TimeoutError:
        return Answer(None, f"No response within {ANSWER_TIMEOUT_S} seconds.")
    except ssl.SSLError as error:
        return Answer(None, f"TLS failed: {error.reason or error}.")
    except socket.gaierror as error:
        return Answer(None, f"Cannot resolve the hostname: {error.strerror}.")
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Answer(None, f"No response: {reason}.")


def _exchange(target: Target, body: bytes, headers: dict[str, str]) -> Answer:
    connection = _Connection(target)
    connection.connect()
    cut = Timer(ANSWER_TIMEOUT_S, connection.cut)
    cut.start()
    try:
        connection.request("POST", target.path, body, headers)
        status = connection.getresponse().status  # the body is not read
    except (OSError, http.client.HTTPException):
        if connection.was_cut:
            raise TimeoutError from None
        raise
    finally:
        cut.cancel()
        connection.close()
    if 200 <= status < 300:
        return Answer(status, "")
    if 300 <= status < 400:
        return Answer(status, f"Status {status}: redirects are not followed. Enter the final URL.")
    return Answer(status, f"Status {status}.")


class _Connection(http.client.HTTPConnection):
    """Connection to the resolved address, with TLS for the hostname."""

    def __init__(self, target: Target):
        super().__init__(target.host, target.port, timeout=ANSWER_TIMEOUT_S)
        self._target = target
        self.default_port = 443 if target.scheme == "https" else 80  # omitted from the Host header
        self.was_cut = False

    def connect(self) -> None:
        self.sock = socket.create_connection((str(self._target.address), self.port), CONNECT_TIMEOUT_S)
        if self._target.scheme == "https":
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)
        self.sock.settimeout(ANSWER_TIMEOUT_S)

    def cut(self) -> None:
        self.was_cut = True
        if self.sock is not None:
            self.sock.shutdown(socket.SHUT_RDWR)
