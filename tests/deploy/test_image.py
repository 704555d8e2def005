"""The Dockerfile: what it takes is there, and what it starts is what ./run starts. No image is built here."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from kgharvest import VERSION, code_version
from tests.deploy.commands import ROOT, command_of_run

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
APPS = ("annotation", "evaluation", "kgharvest")
NOT_IN_THE_IMAGE = {"benches", "deploy", "docs", "tests"}  # and what begins with a dot


def instructions() -> Iterator[tuple[str, str]]:
    """Yield each instruction of the Dockerfile, with its arguments in one line."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line and not line.lstrip().startswith("#")]
    for instruction in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, arguments = instruction.strip().partition(" ")
        yield name, re.sub(r"\s+", " ", arguments.strip())


def last(name: str) -> str:
    return [arguments for instruction, arguments in instructions() if instruction == name][-1]


def taken() -> list[str]:
    """Return the names at the top of the project that go into the image."""
    lines = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    return [line[1:] for line in lines if line.startswith("!")]


def tracked(*arguments: str) -> set[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


def test_all_folders_of_the_project_but_those_go_into_the_image():
    folders = {path.partition("/")[0] for path in tracked("ls-files", "*/*") if not path.startswith(".")}

    assert folders - NOT_IN_THE_IMAGE == {name for name in taken() if (ROOT / name).is_dir()}
    assert [name for name in taken() if not (ROOT / name).exists()] == []


def test_the_image_has_each_file_that_code_reads_beside_itself():
    read = {line.split('"')[1] for line in tracked("grep", "-hoE", r'BASE_DIR / "[^"]+"', "--", *APPS)}

    assert "requirements.txt" in read
    assert read - {"var", "staticfiles"} <= set(taken())


def test_nothing_that_a_checkout_gathers_goes_into_the_image():
    assert not {"var", ".venv", ".git", "deploy", "staticfiles"} & set(taken())
    assert (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()[1] == "*"


def test_each_copied_file_is_taken():
    for name, arguments in instructions():
        if name == "COPY" and not arguments.startswith("--from="):
            assert all(source == "." or source in taken() for source in arguments.split()[:-1]), arguments


def test_processes_get_signals_themselves_and_are_not_root():
    for name in ("ENTRYPOINT", "CMD"):
        assert isinstance(json.loads(last(name)), list)  # no shell, which would keep SIGTERM for itself
    assert json.loads(last("ENTRYPOINT"))[0].endswith("/tini")
    user, _, group = last("USER").partition(":")
    assert int(user) > 0 < int(group)  # numbers, by which Kubernetes knows that it is not root


def test_the_image_starts_what_run_starts():
    python, *arguments = json.loads(last("CMD"))

    assert python == "python"
    assert [part for part in arguments if part not in {"--bind", "0.0.0.0:8000"}] == command_of_run("gunicorn")


def test_no_secret_is_kept_in_the_image():
    kept = [arguments for name, arguments in instructions() if name in {"ENV", "ARG", "LABEL"}]

    assert not [arguments for arguments in kept if re.search(r"SECRET|PASSWORD|TOKEN|API_KEY|_URL=.*@", arguments)]


def test_the_image_is_of_a_python_that_is_tested():
    [version] = [argument[7:] for name, argument in instructions() if argument.startswith("PYTHON=")]

    assert version in re.search(r'^VERSIONS="([^"]+)"', (ROOT / "run").read_text(), re.MULTILINE)[1].split()[:3]


@pytest.mark.parametrize(("status", "is_healthy"), [(200, True), (500, False), (None, False)])
def test_its_health_is_that_of_the_web_server(status, is_healthy):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        port = server.server_port
        if status:
            Thread(target=server.handle_request, daemon=True).start()
        else:
            server.server_close()
        _, _, code = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
        done = subprocess.run([sys.executable, "-c", code.replace(":8000", f":{port}")], capture_output=True)

    assert (done.returncode == 0) == is_healthy


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_hadolint_finds_nothing():
    done = subprocess.run(["hadolint", "--ignore", "DL3008", DOCKERFILE], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout


def test_an_image_tells_the_commit_that_runs(monkeypatch):
    code_version.cache_clear()
    monkeypatch.setenv("KGHARVEST_COMMIT", "0123456789abcdef")
    assert code_version() == f"{VERSION}+01234567"

    code_version.cache_clear()
    monkeypatch.delenv("KGHARVEST_COMMIT")
    assert code_version() != f"{VERSION}+01234567"
