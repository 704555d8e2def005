"""Webhook receiver: a server in a thread that records requests and responds with configured statuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread


class Receiver:
    """answer: function from the number of a request (1, 2, ...) to its status. requests: headers and body of each."""

    def __init__(self, answer: Callable[[int], int]):
        self.answer = answer
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self._lock = Lock()

    def take(self, headers: dict[str, str], body: bytes) -> int:
        with self._lock:
            self.requests.append((headers, body))
            return self.answer(len(self.requests))

    def event_ids(self) -> list[str]:
        return [json.loads(body)["id"] for _, body in self.requests]


@contextmanager
def receiving(answer: Callable[[int], int] = lambda number: 204) -> Iterator[tuple[str, Receiver]]:
    """Yield the URL of a receiver on this machine, and the receiver."""
    receiver = Receiver(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if len(body) < int(self.headers["Content-Length"]):  # the sender was killed
                return
            self.send_response(receiver.take(dict(self.headers), body))
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook?x=1", receiver
    finally:
        server.shutdown()
        server.server_close()
