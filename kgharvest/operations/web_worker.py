"""The workers of the web server: waitress speaks HTTP; gunicorn starts, counts, restarts and stops the processes.

waitress reads a request until it is complete before a thread gets it, and takes an answer off the thread's hands at
once. So clients that send or take slowly, or nothing at all, cost a socket and a little memory or disk, but no thread.
Why these two: docs/decisions/0029-waitress-under-gunicorn.md.
"""

from __future__ import annotations

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

MOST_CONNECTIONS = 2000  # of one worker; fewer where fewer files may be open
FILES_PER_CONNECTION = 3  # its socket, and what of its request and answer is on disk
OTHER_FILES = 200
LOOK_EVERY_S = 1  # whether gunicorn wants the worker to stop
LINGER_S = 2.0  # a worker that stops waits so long for requests that are on their way
# With Python's 5 ms, a thread waits so long for another that computes, each time that it comes back from the database.
SWITCH_THREADS_EVERY_S = 0.0005


class StrictParser(HTTPRequestParser):
    """Refuses what another server could end elsewhere: a length beside chunks, and chunks in HTTP/1.0."""

    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        has_length = "CONTENT_LENGTH" in self.headers
        if "TRANSFER_ENCODING" in self.headers or (self.chunked and has_length):
            raise ParsingError("The length of the body is given twice, or in chunks to an old version.")


class Task(WSGITask):
    """An answer. A worker that stops closes its connections with them, and says so."""

    def build_response_header(self) -> bytes:
        if not self.channel.server.accepting:
            self.request.headers["CONNECTION"] = "close"
        return super().build_response_header()


class Channel(HTTPChannel):
    """A connection."""

    parser_class = StrictParser
    task_class = Task

    @property
    def is_busy(self) -> bool:
        """Whether a request is being received or answered, or an answer not taken yet."""
        begun = self.request is not None and (self.request.header_plus or self.request.headers_finished)
        return bool(begun or self.requests or self.total_outbufs_len)


class WaitressWorker(Worker):
    """A process of the web server. Of gunicorn's settings it follows `threads`, `keepalive` and `graceful_timeout`."""

    def init_process(self) -> None:
        sys.setswitchinterval(SWITCH_THREADS_EVERY_S)
        super().init_process()

    def run(self) -> None:
        sockets: dict[int, wasyncore.dispatcher] = {}  # by file number, as wasyncore has it
        threads = ThreadedTaskDispatcher()
        threads.set_thread_count(self.cfg.threads)
        create_server(
            self.wsgi,
            map=sockets,
            _dispatcher=threads,
            sockets=[listener.sock for listener in self.sockets],
            ident=None,
            asyncore_use_poll=True,
            connection_limit=most_connections(),
            channel_timeout=self.cfg.keepalive,
            cleanup_interval=10,
            max_request_header_size=64 << 10,
            max_request_body_size=2 * settings.LARGEST_UPLOAD,  # smaller ones are refused in words (kgharvest.wsgi)
            inbuf_overflow=64 << 10,
            outbuf_overflow=128 << 10,
            outbuf_high_watermark=1 << 30,  # a thread waits for who takes nothing only with more than this on disk
            clear_untrusted_proxy_headers=False,  # settings.PROXY_COUNT says whom to believe
        )
        for server in _servers(sockets):
            server.channel_class = Channel
        while self.alive and os.getppid() == self.ppid:
            self._serve(sockets, LOOK_EVERY_S)
        self._stop(sockets)
        threads.shutdown(timeout=1)

    def _serve(self, sockets: dict[int, wasyncore.dispatcher], at_most_s: float) -> None:
        self.notify()
        wasyncore.loop(timeout=at_most_s, use_poll=True, map=sockets, count=1)

    def _stop(self, sockets: dict[int, wasyncore.dispatcher]) -> None:
        """Take no more connections; answer what was begun, as far as gunicorn's graceful timeout lets it."""
        stopped_at = monotonic()
        for server in _servers(sockets):
            server.accepting = False
        while monotonic() < stopped_at + self.cfg.graceful_timeout - LOOK_EVERY_S:
            connections = [each for each in sockets.values() if isinstance(each, Channel)]
            if not connections:
                return
            for connection in connections:
                if not connection.is_busy and monotonic() > stopped_at + LINGER_S:
                    connection.will_close = True
            self._serve(sockets, LINGER_S / 20)


def _servers(sockets: dict[int, wasyncore.dispatcher]) -> list[BaseWSGIServer]:
    return [each for each in sockets.values() if isinstance(each, BaseWSGIServer)]


def most_connections() -> int:
    """Let this process open as many files as it may, and return how many connections that is enough for."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS * FILES_PER_CONNECTION + OTHER_FILES
    files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return (files - OTHER_FILES) // FILES_PER_CONNECTION
