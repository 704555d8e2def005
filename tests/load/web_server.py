"""Web server in separate processes, and HTTP clients that act as browsers without rendering."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings

ROOT = Path(__file__).resolve().parent.parent.parent
STARTS_WITHIN_S = 60
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def collect_static_files() -> None:
    """Collect static files as `./run web` does in production, once per test run because running servers read them."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", os.getpid())
    with (Path(settings.DATA_DIR) / "static_files_collected").open("a+") as stamp:
        fcntl.flock(stamp, fcntl.LOCK_EX)
        stamp.seek(0)
        if stamp.read() == str(run):
            return
        production = {"SECRET_KEY": str(settings.SECRET_KEY), "ALLOWED_HOSTS": "127.0.0.1", "DEBUG": ""}
        command = [sys.executable, "manage.py", "collectstatic", "--noinput", "--verbosity", "0"]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **production}, check=True)
        stamp.truncate(0)
        stamp.write(str(run))


class WebServer:
    """gunicorn as started by `./run web`, on a free port that stays the same after a restart.

    variables: environment variables in addition to the production defaults.
    """

    def __init__(self, database_url: str, secret_key: str, *arguments: str, **variables: str):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "gunicorn", "kgharvest.wsgi", "--bind", f"127.0.0.1:{self.port}"]
        self._command = [*command, "--log-level", "error", *arguments]
        production = {"SECRET_KEY": str(secret_key), "ALLOWED_HOSTS": "127.0.0.1", "DEBUG": ""}
        self._environment = {**os.environ, "DATABASE_URL": database_url, **production, **variables}
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        """Start the server and wait until it answers. Raises RuntimeError after STARTS_WITHIN_S seconds."""
        self._process = subprocess.Popen(self._command, env=self._environment, cwd=ROOT, start_new_session=True)
        deadline = time.monotonic() + STARTS_WITHIN_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                Browser(self.port, {}).request("GET", "/api/schema/")  # does not render a page
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the web server did not start")

    def stop(self) -> None:
        """Send SIGTERM, as a service manager does, without waiting for the exit."""
        self._process.terminate()

    def ended_with(self) -> int | None:
        """Return the exit status, or None while the server runs."""
        return self._process.poll()

    def kill(self) -> None:
        """Send SIGKILL to all server processes, as the out-of-memory killer does."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def cpu_seconds(self) -> float:
        """Return the CPU time of the server processes so far."""
        return cpu_seconds(_processes_of_group(self._process.pid))

    def __enter__(self) -> WebServer:
        self.start()
        return self

    def __exit__(self, *reasons) -> None:
        self.kill()


def _processes_of_group(group: int) -> list[int]:
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if _stat(pid)[2:3] == [str(group)]]


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on, or an empty list if the process has exited."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the total user and system time of the processes in seconds. Exited processes count as zero."""
    return sum(int(ticks) for pid in pids for ticks in _stat(pid)[11:13]) / TICKS_PER_SECOND


class Browser:
    """HTTP client with cookies and one persistent connection."""

    def __init__(self, port: int, cookies: dict[str, str], host: str = "127.0.0.1", timeout_s: float = 60):
        self._connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        self._headers = {
            "Accept": "application/json",
            "Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items()),
            "X-CSRFToken": cookies.get("csrftoken", ""),
            "Content-Type": "application/x-www-form-urlencoded",
            "X-Forwarded-Proto": "https",  # set by the proxy in production
            "Origin": f"https://{host}:{port}",
        }

    def request(self, method: str, path: str, **fields: Any) -> tuple[int, bytes]:
        """Return status and body. Raises OSError or HTTPException if the server dies; the next call reconnects."""
        try:
            self._connection.request(method, path, urlencode(fields) if fields else None, self._headers)
            response = self._connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise

    def json(self, method: str, path: str, **fields: Any) -> tuple[int, Any]:
        status, body = self.request(method, path, **fields)
        return status, json.loads(body)


def url_of(connection) -> str:
    """Return the DATABASE_URL of an open connection. In tests it names the test database."""
    database = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{database['NAME']}"
    return f"postgres://{database['USER']}:{quote(database['PASSWORD'])}@{database['HOST']}:{database['PORT']}/{database['NAME']}"


def logged_in(user) -> dict[str, str]:
    """Create a session for `user` and return its cookies."""
    from django.conf import settings
    from django.test import Client

    client = Client()
    client.force_login(user)
    return {settings.SESSION_COOKIE_NAME: client.cookies[settings.SESSION_COOKIE_NAME].value, "csrftoken": "a" * 32}
