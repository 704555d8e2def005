"""gunicorn's threaded worker, which lets no thread wait for a client: whole requests are received before one answers.

gunicorn gives a thread to every new connection, which waits there for data, and to every request that has begun to
come, which waits there for the rest: eight half-sent requests, or some hundred idle connections, stop eight threads.
Here one loop receives all requests, and threads get whole ones.
"""

from __future__ import annotations

import re
import struct
import time
from collections import deque
from functools import partial
from operator import attrgetter
from selectors import EVENT_READ
from socket import SO_SNDTIMEO, SOL_SOCKET, socket
from tempfile import SpooledTemporaryFile
from typing import Any

from gunicorn import util
from gunicorn.http.unreader import Unreader
from gunicorn.workers.gthread import TConn, ThreadWorker

from kgharvest.settings import LARGEST_UPLOAD

AT_ONCE = 1 << 16  # bytes received at once, and of a request that are kept in memory
LONGEST_HEAD = 1 << 16  # bytes
WITHIN_S = 300  # from a request's first byte to its last
SEND_TIMEOUT = struct.pack("ll", 30, 0)  # seconds and microseconds: a client that takes nothing for so long has gone
HEAD_END = b"\r\n\r\n"
CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r\n", re.IGNORECASE)
TRANSFER_ENCODING = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)


class Refused(Exception):
    """A request that is not received to its end. args: status and its name."""


class IncomingRequest:
    """What has come of a request: in memory while it is small, in a file without a name later.

    size: bytes that have come; length: of head and body together, None until the head is there.
    """

    def __init__(self) -> None:
        self.content = SpooledTemporaryFile(max_size=AT_ONCE)  # noqa: SIM115 - closed by the unreader
        self.size = 0
        self.length: int | None = None
        self.ends_at = time.monotonic() + WITHIN_S
        self._head = b""

    @property
    def is_whole(self) -> bool:
        return self.length is not None and self.size >= self.length

    @property
    def n_wanted(self) -> int:
        """How many bytes to receive next: none of a request behind this one once the length is known."""
        return AT_ONCE if self.length is None else min(AT_ONCE, self.length - self.size)

    def add(self, piece: bytes) -> None:
        """Raises Refused for a head or body that is too large, or a body of unknown length."""
        self.content.write(piece)
        self.size += len(piece)
        if self.length is None:
            self._head += piece
            self._find_length()

    def _find_length(self) -> None:
        end = self._head.find(HEAD_END)
        if end < 0:
            if len(self._head) > LONGEST_HEAD:
                raise Refused(431, "Request Header Fields Too Large")
            return
        head = self._head[: end + len(HEAD_END)]
        if TRANSFER_ENCODING.search(head):
            raise Refused(411, "Length Required")
        body = CONTENT_LENGTH.search(head)
        self.length, self._head = len(head) + int(body[1] if body else 0), b""
        if self.length > LARGEST_UPLOAD + LONGEST_HEAD:
            raise Refused(413, "Content Too Large")


class ReceivedUnreader(Unreader):
    """What gunicorn's parser reads from: a request that has been received, never the socket."""

    def __init__(self, content: Any):
        super().__init__()
        content.seek(0)
        self._content = content

    def chunk(self, size_hint: int | None = None) -> bytes:
        if self._content.closed:
            return b""
        piece: bytes = self._content.read(AT_ONCE + LONGEST_HEAD)  # a whole head, and what came behind its request
        if not piece:
            self._content.close()
        return piece


class Connection(TConn):
    incoming: IncomingRequest | None = None

    def close(self, graceful: bool = False) -> None:
        """Close at once: the request has been received, so no unread rest of it takes the answer from the client.

        gunicorn's own waits up to two seconds for the client, and all others wait with it.
        """
        super().close()


class ReceivingWorker(ThreadWorker):
    """`pending_conns` are connections that nothing, or not a whole request, has come from."""

    def accept(self, listener: socket) -> None:
        try:
            client, address = listener.accept()
        except OSError as error:
            self.log.debug("Nothing to accept: %s", error)
            return
        client.setsockopt(SOL_SOCKET, SO_SNDTIMEO, SEND_TIMEOUT)
        self.nr_conns += 1
        self._await_data(Connection(self.cfg, client, address, listener.getsockname()))

    def _await_data(self, connection: Connection) -> None:
        connection.sock.setblocking(False)
        connection.timeout = time.monotonic() + self.cfg.keepalive
        self.pending_conns.append(connection)
        self.poller.register(connection.sock, EVENT_READ, partial(self.on_pending_socket_readable, connection))

    def enqueue_req(self, connection: Connection) -> None:
        """Receive what is there; give the request to a thread once it is whole."""
        try:
            is_open = self._receive(connection)
        except Refused as refusal:
            util.write_error(connection.sock, *refusal.args, "")
            is_open = False
        except OSError:
            is_open = False
        if not is_open:
            self.nr_conns -= 1
            connection.close()
        elif connection.incoming.is_whole:
            super().enqueue_req(connection)
        else:
            self._await_data(connection)

    def _receive(self, connection: Connection) -> bool:
        """Return whether the client goes on. Raises Refused or OSError."""
        incoming = connection.incoming = connection.incoming or IncomingRequest()
        if connection.initialized and (read_ahead := connection.parser.unreader.take_buffered()):
            incoming.add(read_ahead)
        connection.sock.setblocking(False)
        while not incoming.is_whole:
            try:
                piece = connection.sock.recv(incoming.n_wanted)
            except BlockingIOError:
                return time.monotonic() < incoming.ends_at
            if not piece:
                return False
            incoming.add(piece)
        return True

    def _cap_keepalive(self, deadline: float) -> None:
        """When the worker stops: wait no longer for those that nothing has come from, but for begun requests."""
        super()._cap_keepalive(deadline)
        for connection in self.pending_conns:
            if connection.incoming is None:
                connection.timeout = min(connection.timeout, deadline)
        self.pending_conns = deque(sorted(self.pending_conns, key=attrgetter("timeout")))

    def handle(self, connection: Connection) -> Any:
        """Have gunicorn parse and answer the request; in a thread."""
        connection.init()
        connection.data_ready = True
        connection.parser.unreader = ReceivedUnreader(connection.incoming.content)
        connection.incoming = None
        return super().handle(connection)
