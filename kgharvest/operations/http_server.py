"""HTTP server based on waitress. It passes only complete requests to a thread, and buffers responses.

Therefore, slow or idle clients occupy a socket and some memory or disk, but no thread. Under gunicorn, each process is
such a server (kgharvest.operations.web_worker). Without gunicorn, `python -m kgharvest.operations.http_server` is the
only process. See docs/decisions/0029-waitress-under-gunicorn.md.
"""

import resource
import runpy
import signal
import socket
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string
from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import BaseWSGIServer, create_server
from waitress.task import ThreadedTaskDispatcher, WSGITask

MAX_CONNECTIONS = 2000  # maximum number of connections per process, unless the limit of open files is lower
FILES_PER_CONNECTION = 3  # the socket, and the buffers of request and response on disk
OTHER_FILES = 200
LOOK_EVERY_S = 1  # interval between checks whether the server must stop
LINGER_S = 2.0  # time to wait for arriving requests when the server stops
GRACE_S = 30  # the default of gunicorn
# With Python's default of 5 ms, a thread may wait that long for a computing thread each time it returns from the
# database.
SWITCH_THREADS_EVERY_S = 0.0005


class StrictParser(HTTPRequestParser):
    """Parser that rejects requests whose end is ambiguous: a length together with chunks, and chunks in HTTP/1.0."""

    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        if "TRANSFER_ENCODING" in self.headers or (self.chunked and "CONTENT_LENGTH" in self.headers):
            raise ParsingError("Ambiguous body length: Content-Length with chunks, or chunks in HTTP/1.0.")


class Task(WSGITask):
    def build_response_header(self) -> bytes:
        """Build the header. If the server is stopping, the header announces the end of the connection."""
        if not self.channel.server.accepting:
            self.request.headers["CONNECTION"] = "close"
        return super().build_response_header()


class Channel(HTTPChannel):
    parser_class = StrictParser
    task_class = Task

    @property
    def is_busy(self) -> bool:
        """True while a request is being received or answered, or a response is not yet sent."""
        begun = self.request is not None and (self.request.header_plus or self.request.headers_finished)
        return bool(begun or self.requests or self.total_outbufs_len)


class HttpServer:
    """HTTP server of this process. listeners: bound sockets.

    keepalive_s: idle time after which connections are closed.
    """

    def __init__(
        self, application: Callable[..., Any], listeners: Sequence[socket.socket], n_threads: int, keepalive_s: int
    ) -> None:
        sys.setswitchinterval(SWITCH_THREADS_EVERY_S)
        self._sockets: dict[int, wasyncore.dispatcher] = {}  # connections by file descriptor
        self._threads = ThreadedTaskDispatcher()
        self._threads.set_thread_count(n_threads)
        # Raise the limit of open files as far as needed and permitted.
        _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        required = MAX_CONNECTIONS * FILES_PER_CONNECTION + OTHER_FILES
        n_files = required if hard_limit == resource.RLIM_INFINITY else min(required, hard_limit)
        resource.setrlimit(resource.RLIMIT_NOFILE, (n_files, hard_limit))
        create_server(
            application,
            map=self._sockets,
            _dispatcher=self._threads,
            sockets=listeners,
            ident=None,
            asyncore_use_poll=True,
            connection_limit=(n_files - OTHER_FILES) // FILES_PER_CONNECTION,
            channel_timeout=keepalive_s,
            cleanup_interval=10,
            max_request_header_size=64 << 10,
            # kgharvest.wsgi rejects large bodies below this limit with a message.
            max_request_body_size=2 * settings.LARGEST_UPLOAD,
            inbuf_overflow=64 << 10,
            outbuf_overflow=128 << 10,
            outbuf_high_watermark=1 << 30,  # number of bytes on disk at which a thread waits for a slow client
            clear_untrusted_proxy_headers=False,  # settings.PROXY_COUNT determines which proxies are trusted
        )
        for server in self._servers():
            server.channel_class = Channel

    def serve(self, is_wanted: Callable[[], bool], grace_s: float) -> None:
        """Serve while `is_wanted`, which is called at least every LOOK_EVERY_S, then stop.

        While stopping, the server accepts no more connections and answers started requests within `grace_s`.
        """
        while is_wanted():
            self._poll(LOOK_EVERY_S)
        stopped_at = monotonic()
        for server in self._servers():
            server.accepting = False
        while monotonic() < stopped_at + grace_s - LOOK_EVERY_S:
            is_wanted()  # this also reports to gunicorn that the process is alive
            connections = [socket for socket in self._sockets.values() if isinstance(socket, Channel)]
            if not connections:
                break
            for connection in connections:
                if not connection.is_busy and monotonic() > stopped_at + LINGER_S:
                    connection.will_close = True
            self._poll(LINGER_S / 20)
        self._threads.shutdown(timeout=1)

    def _poll(self, timeout_s: float) -> None:
        wasyncore.loop(timeout=timeout_s, use_poll=True, map=self._sockets, count=1)

    def _servers(self) -> list[BaseWSGIServer]:
        return [socket for socket in self._sockets.values() if isinstance(socket, BaseWSGIServer)]


def main() -> None:
    """Serve `kgharvest.wsgi` in this process until SIGTERM or Ctrl-C, with the settings of gunicorn.conf.py."""
    parser = ArgumentParser(prog="kgharvest web")
    parser.add_argument("--bind", required=True, metavar="HOST:PORT")
    parser.add_argument("application")
    arguments, others = parser.parse_known_args()
    if others:
        parser.error(f'{others[0]} requires gunicorn, which is not installed. Run: pip install "kgharvest[server]"')
    host, _, port = arguments.bind.rpartition(":")
    if not port.isdecimal():
        parser.error(f"--bind is {arguments.bind!r:.60}. Use HOST:PORT, for example 127.0.0.1:8000.")
    stops: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stops.append(number))
    with listening(parser, host.strip("[]"), int(port)) as listener:
        options = runpy.run_path(str(settings.BASE_DIR / "gunicorn.conf.py"))
        application = import_string(f"{arguments.application}.application")
        server = HttpServer(application, [listener], options["threads"], options["keepalive"])
        options["when_ready"](server)
        print(f"Listening at http://{arguments.bind}", file=sys.stderr, flush=True)  # noqa: T201
        server.serve(lambda: not stops, GRACE_S)


def listening(parser: ArgumentParser, host: str, port: int) -> socket.socket:
    """Return a listening socket. Prints a message and exits if the address cannot be used."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
        )
    except (OSError, OverflowError) as error:
        parser.error(f"--bind: cannot listen at {host} port {port} ({error}). Use another address or port.")


if __name__ == "__main__":
    main()
