"""Chat endpoint on the loopback interface with scripted replies, including slow, invalid, and missing replies."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Reply(NamedTuple):
    """body: sent unchanged. is_cut: close the connection after half of the body."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    is_cut: bool = False
    delay_s: float = 0.0


def completion(text: str | None, n_prompt: int = 50, n_completion: int = 2, **message: Any) -> Reply:
    document = {
        "model": "judge-1",
        "system_fingerprint": "fp_1",
        "choices": [{"message": {"role": "assistant", "content": text, **message}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": n_prompt, "completion_tokens": n_completion},
    }
    return Reply(body=json.dumps(document).encode(), headers=(("Content-Type", "application/json"),))


def stream(*pieces: str, is_whole: bool = True) -> Reply:
    events = [{"model": "judge-1", "choices": [{"delta": {"content": piece}}]} for piece in pieces]
    lines = [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"] * is_whole
    return Reply(body="".join(lines).encode(), headers=(("Content-Type", "text/event-stream"),))


Answer = Callable[[dict[str, Any]], Reply]


class FakeEndpoint:
    """requests: bodies in order of arrival. n_answered: number of complete replies with status 200."""

    def __init__(self, answer: Answer):
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.n_answered = self.n_at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.url = ""

    @property
    def prompts(self) -> list[str]:
        return [request["messages"][0]["content"] for request in self.requests]

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            self.requests.append(body)
            self.headers.append(dict(handler.headers))
            self.n_at_once += 1
            self.most_at_once = max(self.most_at_once, self.n_at_once)
        reply = self.answer(body)  # without the lock, as one answer may wait for another
        time.sleep(reply.delay_s)
        is_answer = reply.status == 200 and not reply.is_cut
        with self.lock:
            self.n_answered += is_answer  # before the client receives the reply
        try:
            send(handler, reply)
        except OSError:  # the client has disconnected
            with self.lock:
                self.n_answered -= is_answer
        finally:
            with self.lock:
                self.n_at_once -= 1


def send(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    handler.send_response(reply.status)
    for header in reply.headers:
        handler.send_header(*header)
    handler.send_header("Content-Length", str(len(reply.body)))
    handler.end_headers()
    handler.wfile.write(reply.body[: len(reply.body) // 2] if reply.is_cut else reply.body)
    handler.wfile.flush()
    if reply.is_cut:
        handler.connection.close()


@contextmanager
def serving(answer: Answer) -> Iterator[FakeEndpoint]:
    fake = FakeEndpoint(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            fake.handle(self)

        def log_message(self, *args: object) -> None:
            """Suppress logging."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        fake.url = f"http://127.0.0.1:{server.server_port}/v1"
        yield fake
        server.shutdown()
