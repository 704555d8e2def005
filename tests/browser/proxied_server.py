"""Web server behind nginx with TLS, on a nonstandard port and under a path, as labs deploy it."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from django.conf import settings
from django.db import connection

from tests.load.web_server import ROOT, STARTS_WITHIN_S, WebServer, collect_static_files, url_of

PREFIX = "/kg"
FRAME = """
daemon off;
error_log {folder}/error.log;
pid {folder}/nginx.pid;
events {{}}
http {{
    types {{ text/html html; }}
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{site}
}}
"""


class ProxiedServer:
    """Context manager that serves the test database at `url` through an adapted deploy/nginx.conf."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._port, self._plain_port = free_port(), free_port()
        self.url = f"https://127.0.0.1:{self._port}{PREFIX}"
        self._web = WebServer(url_of(connection), settings.SECRET_KEY, KGHARVEST_BASE_URL=self.url)
        self._stack = ExitStack()

    def __enter__(self) -> ProxiedServer:
        with ExitStack() as stack:
            collect_static_files()
            stack.enter_context(self._web)
            make_certificate(self._folder)
            nginx = subprocess.Popen(["nginx", "-p", self._folder, "-c", self._configuration()])
            stack.callback(nginx.wait)
            stack.callback(nginx.terminate)
            wait_for_port(self._port)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *reasons) -> None:
        self._stack.close()

    def _configuration(self) -> Path:
        """Write the shipped configuration with the changes that its first lines describe; return its path."""
        site = over_ipv4((ROOT / "deploy" / "nginx.conf").read_text())
        changes = {
            "listen 80;": f"listen 127.0.0.1:{self._plain_port};",
            "listen 443 ": f"listen 127.0.0.1:{self._port} ",
            "https://$host$": f"https://$host:{self._port}$",
            "/etc/letsencrypt/live/harvest.example.org": str(self._folder),
            "/var/log/nginx": str(self._folder),
            "harvest.example.org;": "127.0.0.1;",
            "127.0.0.1:8000": f"127.0.0.1:{self._web.port}",
            "location / ": f"location {PREFIX}/ ",
            "location /accounts/": f"location {PREFIX}/accounts/",
            "location /static/": f"location {PREFIX}/static/",
        }
        for shipped, replacement in changes.items():
            assert shipped in site, f"deploy/nginx.conf has no {shipped!r}"
            site = site.replace(shipped, replacement)
        path = self._folder / "nginx.conf"
        path.write_text(FRAME.format(folder=self._folder, site=site))
        return path


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("nginx did not start")


def has_ipv6() -> bool:
    """Return whether IPv6 is available on this machine."""
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


def over_ipv4(site: str) -> str:
    """Remove the IPv6 listeners from the configuration."""
    return re.sub(r"^ *listen \[::\].*\n", "", site, flags=re.MULTILINE)


def make_certificate(folder: Path) -> None:
    """Write a self-signed certificate and its key, named as in deploy/nginx.conf, to `folder`."""
    files = f"-keyout {folder}/privkey.pem -out {folder}/fullchain.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=127.0.0.1 {files}"
    subprocess.run(command.split(), check=True, capture_output=True)
