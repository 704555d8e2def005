"""Workers of the web server: waitress handles HTTP; gunicorn manages the processes.

waitress passes only complete requests to a thread and buffers responses, so slow or idle clients occupy a socket and
some memory or disk, but no thread. See docs/decisions/0029-waitress-under-gunicorn.md.
"""

import os
import resource
import sys
from time import monotonic

from django.conf import settings
from gunicorn.workers.base import Worker
from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import BaseWSGIServer, create_server
from waitress.task import ThreadedTaskDispatcher, WSGITask

MAX_CONNECTIONS = 2000  # per worker, unless the limit of open files is lower
FILES_PER_CONNECTION = 3  # the socket, and buffers of request and response on disk
OTHER_FILES = 200
LOOK_EVERY_S = 1  # between two checks of whether gunicorn is stopping the worker
LINGER_S = 2.0  # waiting time for arriving requests when stopping
# With Python's default of 5 ms, each return from the database may wait that long for a computing thread.
SWITCH_THREADS_EVERY_S = 0.0005


class StrictParser(HTTPRequestParser):
    """Rejects requests whose end is ambiguous: length and chunks together, and chunks in HTTP/1.0."""

    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        if "TRANSFER_ENCODING" in self.headers or (self.chunked and "CONTENT_LENGTH" in self.headers):
            raise ParsingError("Ambiguous body length: Content-Length with chunks, or chunks in HTTP/1.0.")


class Task(WSGITask):
    def build_response_header(self) -> bytes:
        """Announce the end of the connection if the worker is stopping."""
        if not self.channel.server.accepting:
            self.request.headers["CONNECTION"] = "close"
        return super().build_response_header()


class Channel(HTTPChannel):
    parser_class = StrictParser
    task_class = Task

    @property
    def is_busy(self) -> bool:
        """True while a request is being received or answered, or while a response has not been sent."""
        begun = self.request is not None and (self.request.header_plus or self.request.headers_finished)
        return bool(begun or self.requests or self.total_outbufs_len)


class WaitressWorker(Worker):
    """Process of the web server. Supports gunicorn's settings `threads`, `keepalive`, and `graceful_timeout`."""

    def run(self) -> None:
        sys.setswitchinterval(SWITCH_THREADS_EVERY_S)
        sockets: dict[int, wasyncore.dispatcher] = {}  # by file descriptor
        threads = ThreadedTaskDispatcher()
        threads.set_thread_count(self.cfg.threads)
        # Raise the limit of open files as far as needed and permitted.
        _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        required = MAX_CONNECTIONS * FILES_PER_CONNECTION + OTHER_FILES
        n_files = required if hard_limit == resource.RLIM_INFINITY else min(required, hard_limit)
        resource.setrlimit(resource.RLIMIT_NOFILE, (n_files, hard_limit))
        create_server(
            self.wsgi,
            map=sockets,
            _dispatcher=threads,
            sockets=[listener.sock for listener in self.sockets],
            ident=None,
            asyncore_use_poll=True,
            connection_limit=(n_files - OTHER_FILES) // FILES_PER_CONNECTION,
            channel_timeout=self.cfg.keepalive,
            cleanup_interval=10,
            max_request_header_size=64 << 10,
            max_request_body_size=2 * settings.LARGEST_UPLOAD,  # kgharvest.wsgi rejects smaller bodies with a message
            inbuf_overflow=64 << 10,
            outbuf_overflow=128 << 10,
            outbuf_high_watermark=1 << 30,  # bytes on disk before a thread waits for a slow client
            clear_untrusted_proxy_headers=False,  # settings.PROXY_COUNT determines trust
        )
        for server in _servers(sockets):
            server.channel_class = Channel
        while self.alive and os.getppid() == self.ppid:
            self._serve(sockets, LOOK_EVERY_S)
        self._stop(sockets)
        threads.shutdown(timeout=1)

    def _serve(self, sockets: dict[int, wasyncore.dispatcher], timeout_s: float) -> None:
        self.notify()
        wasyncore.loop(timeout=timeout_s, use_poll=True, map=sockets, count=1)

    def _stop(self, sockets: dict[int, wasyncore.dispatcher]) -> None:
        """Accept no more connections, and answer started requests within gunicorn's graceful timeout."""
        stopped_at = monotonic()
        for server in _servers(sockets):
            server.accepting = False
        while monotonic() < stopped_at + self.cfg.graceful_timeout - LOOK_EVERY_S:
            connections = [socket for socket in sockets.values() if isinstance(socket, Channel)]
            if not connections:
                return
            for connection in connections:
                if not connection.is_busy and monotonic() > stopped_at + LINGER_S:
                    connection.will_close = True
            self._serve(sockets, LINGER_S / 20)


def _servers(sockets: dict[int, wasyncore.dispatcher]) -> list[BaseWSGIServer]:
    return [socket for socket in sockets.values() if isinstance(socket, BaseWSGIServer)]
