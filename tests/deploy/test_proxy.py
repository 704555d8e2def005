"""Sample proxy configuration: it matches the web server behind the proxy."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest
from django.urls import get_resolver

from kgharvest.settings import LARGEST_UPLOAD
from kgharvest.wsgi import below
from tests.browser.proxied_server import FRAME, free_port, has_ipv6, make_certificate, over_ipv4, wait_for_port
from tests.test_access_table import routes

ROOT = Path(__file__).resolve().parents[2]
NGINX = ROOT / "deploy" / "nginx.conf"

needs_nginx = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")


def value_of(directive: str) -> str:
    [value] = re.findall(rf"^\s*{directive} ([^;]+);", NGINX.read_text(), re.MULTILINE)
    return value


def test_proxy_and_server_have_the_same_upload_limit():
    assert value_of("client_max_body_size") == f"{LARGEST_UPLOAD >> 20}m"


def test_proxy_keepalive_is_shorter_than_server_keepalive():
    [keepalive] = re.findall(r"^keepalive = (\d+)", (ROOT / "gunicorn.conf.py").read_text(), re.MULTILINE)

    assert int(value_of("keepalive_timeout").partition("s")[0]) < int(keepalive)


TOKEN = "Zm9vYmFyYmF6"
TOKEN_ROUTES = sorted(
    {
        route.replace("<uidb64>", "MQ")
        for _, route in routes(get_resolver().url_patterns)
        if re.search(r"<(?:\w+:)?(?:token|secret)>|^return/<", route)
    }
)


@pytest.mark.parametrize("route", TOKEN_ROUTES)
def test_access_log_masks_tokens_of_links(route):
    [pattern] = re.findall(r'"~(\^\(\?<kgharvest_start>.*)"  ', NGINX.read_text())
    match = re.match(pattern.replace("?<", "?P<"), f"/kg/{re.sub('<[^>]+>', TOKEN, route)}")

    assert match
    assert TOKEN not in match["kgharvest_start"]


def configuration(folder: Path, **changes: str) -> Path:
    """Write the shipped site with `changes` and a certificate to `folder`; return the configuration path."""
    make_certificate(folder)
    site = NGINX.read_text().replace("/etc/letsencrypt/live/harvest.example.org", str(folder))
    site = site.replace("/var/log/nginx", str(folder))
    site = site if has_ipv6() else over_ipv4(site)
    for shipped, replacement in changes.items():
        assert shipped in site
        site = site.replace(shipped, replacement)
    (folder / "nginx.conf").write_text(FRAME.format(folder=folder, site=site))
    return folder / "nginx.conf"


def with_several_servers(text: str) -> str:
    """Replace the single web server by the commented-out list of servers."""
    return text.replace("    server 127.0.0.1:8000;\n", "").replace("    # server ", "    server ")


@needs_nginx
@pytest.mark.parametrize("is_multi_server", [False, True])
def test_nginx_accepts_configuration(tmp_path, is_multi_server):
    path = configuration(tmp_path)
    if is_multi_server:
        path.write_text(with_several_servers(path.read_text()))
        assert "127.0.0.1:8000" not in path.read_text()
        assert "    server 10.0.0.12:8000" in path.read_text()

    done = subprocess.run(["nginx", "-t", "-p", tmp_path, "-c", path], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


class Release(BaseHTTPRequestHandler):
    """Web server that serves the static files of one release and accepts forms."""

    release: str

    def answer(self) -> None:
        has = not self.path.startswith("/static/") or self.path == f"/static/{self.release}.css"
        self.send_response(200 if has else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = answer

    def log_message(self, *arguments) -> None:
        pass


@contextmanager
def serving(release: str):
    handler = type("Handler", (Release,), {"release": release})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@needs_nginx
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_proxy_answers_over_ipv6(tmp_path):
    tls, plain = free_port(), free_port()
    with serving("new") as server, ExitStack() as stack:
        addresses = {
            "listen 80;": f"listen 127.0.0.1:{plain};",
            "listen [::]:80;": f"listen [::1]:{plain};",
            "listen 443 ": f"listen 127.0.0.1:{tls} ",
            "listen [::]:443 ": f"listen [::1]:{tls} ",
        }
        path = configuration(tmp_path, **addresses, **{"server 127.0.0.1:8000;": f"server 127.0.0.1:{server};"})
        nginx = subprocess.Popen(["nginx", "-p", tmp_path, "-c", path])
        stack.callback(nginx.wait)
        stack.callback(nginx.terminate)
        wait_for_port(tls)

        page = httpx.get(f"https://[::1]:{tls}/join/{TOKEN}/?PROLIFIC_PID={TOKEN}", verify=False)
        plain_page = httpx.get(f"http://[::1]:{plain}/rounds/?{TOKEN}")

    assert (page.status_code, plain_page.status_code) == (200, 308)
    log = (tmp_path / "access.log").read_text()
    assert '"GET /join/..." 200' in log
    assert '"GET /rounds/" 308' in log
    assert TOKEN not in log


@needs_nginx
def test_rolling_release_serves_all_pages_forms_and_styles(tmp_path):
    """Three web servers: one is down for replacement, one runs the old release, and one the new release."""
    tls, plain, gone = free_port(), free_port(), free_port()
    with serving("old") as old, serving("new") as new, ExitStack() as stack:
        servers = " ".join(f"server 127.0.0.1:{port} max_fails=1 fail_timeout=10s;" for port in (gone, old, new))
        path = configuration(
            tmp_path,
            **{
                "listen 80;": f"listen 127.0.0.1:{plain};",
                "listen 443 ": f"listen 127.0.0.1:{tls} ",
                "server 127.0.0.1:8000;": servers,
            },
        )
        path.write_text(over_ipv4(path.read_text()))
        nginx = subprocess.Popen(["nginx", "-p", tmp_path, "-c", path])
        stack.callback(nginx.wait)
        stack.callback(nginx.terminate)
        wait_for_port(tls)
        client = stack.enter_context(httpx.Client(base_url=f"https://127.0.0.1:{tls}", verify=False))
        answers = [client.get(path) for path in ["/", "/static/old.css", "/static/new.css"] * 4]
        answers += [client.post("/judge/", data={"label": "true"}) for _ in range(6)]

    assert [answer.status_code for answer in answers] == [200] * len(answers)


@pytest.mark.parametrize(
    ("path", "status", "seen"),
    [
        ("/kg/rounds/", "200 OK", "/rounds/"),
        ("/kg/", "200 OK", "/"),
        ("/healthz", "200 OK", "/healthz"),  # health checks bypass the proxy
        ("/kgb/", "200 OK", "/kgb/"),
        ("/kg", "308 Permanent Redirect", None),
    ],
)
def test_installation_path_is_stripped(path, status, seen):
    answers, paths = [], []

    def served(environ, start_response):
        paths.append(environ["PATH_INFO"])
        start_response("200 OK", [])
        return []

    below("/kg", served)({"PATH_INFO": path}, lambda status, headers: answers.append(status))

    assert answers == [status]
    assert paths == ([seen] if seen else [])
