"""Network link that can be cut: a local port that forwards to a server until all its connections are closed at once."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Link:
    """Local port that forwards to `host` and `port`."""

    def __init__(self, host: str, port: int):
        self._there = (host, port)
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.n_connections = 0

    def __enter__(self) -> Link:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *reason) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Close all connections on both sides. New connections are accepted."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for end in sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._server.accept()
                there = socket.create_connection(self._there)
            except OSError:  # closed
                return
            with self._lock:
                self._sockets += [here, there]
                self.n_connections += 1
            for source, target in ((here, there), (there, here)):
                threading.Thread(target=self._forward, args=[source, target], daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
