"""The sample configuration of the proxy agrees with the server behind it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kgharvest.settings import LARGEST_UPLOAD
from kgharvest.wsgi import below

ROOT = Path(__file__).resolve().parents[2]
NGINX = ROOT / "deploy" / "nginx.conf"


def value_of(directive: str) -> str:
    [value] = re.findall(rf"^\s*{directive} ([^;]+);", NGINX.read_text(), re.MULTILINE)
    return value


def test_the_proxy_refuses_what_the_server_would():
    assert value_of("client_max_body_size") == f"{LARGEST_UPLOAD >> 20}m"


def test_the_proxy_closes_connections_before_the_server_does():
    [keepalive] = re.findall(r"^keepalive = (\d+)", (ROOT / "gunicorn.conf.py").read_text(), re.MULTILINE)

    assert int(value_of("keepalive_timeout").partition("s")[0]) < int(keepalive)


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_takes_the_configuration(tmp_path):
    key, certificate = tmp_path / "privkey.pem", tmp_path / "fullchain.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=a -keyout {key} -out {certificate}"
    subprocess.run(command.split(), check=True, capture_output=True)
    site = NGINX.read_text().replace("/etc/letsencrypt/live/harvest.example.org", str(tmp_path))
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{\n{site}\n}}\n")

    done = subprocess.run(
        ["nginx", "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf"], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("path", "status", "seen"),
    [
        ("/kg/rounds/", "200 OK", "/rounds/"),
        ("/kg/", "200 OK", "/"),
        ("/healthz", "200 OK", "/healthz"),  # asked for by a machine beside the server
        ("/kgb/", "200 OK", "/kgb/"),
        ("/kg", "308 Permanent Redirect", None),
    ],
)
def test_the_path_of_the_installation_is_taken_off(path, status, seen):
    answers, paths = [], []

    def served(environ, start_response):
        paths.append(environ["PATH_INFO"])
        start_response("200 OK", [])
        return []

    below("/kg", served)({"PATH_INFO": path}, lambda status, headers: answers.append(status))

    assert answers == [status]
    assert paths == ([seen] if seen else [])
