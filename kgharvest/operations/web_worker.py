"""Workers of gunicorn, which manages the processes. kgharvest.operations.http_server handles HTTP."""

import os

from gunicorn.workers.base import Worker

from kgharvest.operations.http_server import HttpServer


class WaitressWorker(Worker):
    """A process of the web server. It supports gunicorn's settings `threads`, `keepalive`, and `graceful_timeout`."""

    def run(self) -> None:
        listeners = [listener.sock for listener in self.sockets]
        server = HttpServer(self.wsgi, listeners, self.cfg.threads, self.cfg.keepalive)
        server.serve(self._is_wanted, self.cfg.graceful_timeout)

    def _is_wanted(self) -> bool:
        self.notify()
        return self.alive and os.getppid() == self.ppid
