"""Dockerfile: copied files exist, and the start command equals that of the command `web`. No image is built."""

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
from tests.deploy.commands import ROOT, fixed_arguments

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
APPS = ("annotation", "evaluation", "kgharvest")
NOT_IN_THE_IMAGE = {"benches", "deploy", "docs", "tests"}  # and names with a leading dot


def instructions() -> Iterator[tuple[str, str]]:
    """Yield each Dockerfile instruction with its arguments joined into one line."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line and not line.lstrip().startswith("#")]
    for instruction in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, arguments = instruction.strip().partition(" ")
        yield name, re.sub(r"\s+", " ", arguments.strip())


def last_arguments(name: str) -> str:
    return [arguments for instruction, arguments in instructions() if instruction == name][-1]


def included() -> list[str]:
    """Return the top-level names that .dockerignore includes in the image."""
    lines = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    return [line[1:] for line in lines if line.startswith("!")]


def git_lines(*arguments: str) -> set[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


def test_image_includes_all_project_folders_except_excluded_ones():
    folders = {path.partition("/")[0] for path in git_lines("ls-files", "*/*") if not path.startswith(".")}

    assert folders - NOT_IN_THE_IMAGE == {name for name in included() if (ROOT / name).is_dir()}
    assert [name for name in included() if not (ROOT / name).exists()] == []


def test_image_includes_files_that_code_reads_from_base_dir():
    read = {line.split('"')[1] for line in git_lines("grep", "-hoE", r'BASE_DIR / "[^"]+"', "--", *APPS)}

    assert "requirements.txt" in read
    assert read - {"var", "staticfiles"} <= set(included())


def test_image_excludes_local_checkout_files():
    assert not {"var", ".venv", ".git", "deploy", "staticfiles"} & set(included())
    assert (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()[1] == "*"


def test_copied_files_are_in_build_context():
    for name, arguments in instructions():
        if name == "COPY" and not arguments.startswith("--from="):
            assert all(source == "." or source in included() for source in arguments.split()[:-1]), arguments


def test_processes_receive_signals_and_run_as_non_root():
    for name in ("ENTRYPOINT", "CMD"):
        assert isinstance(json.loads(last_arguments(name)), list)  # exec form: a shell would not forward SIGTERM
    assert json.loads(last_arguments("ENTRYPOINT"))[0].endswith("/tini")
    user, _, group = last_arguments("USER").partition(":")
    assert int(user) > 0 < int(group)  # Kubernetes verifies runAsNonRoot only for numeric IDs


def test_image_runs_the_command_of_web():
    python, *arguments = json.loads(last_arguments("CMD"))

    assert python == "python"
    assert [part for part in arguments if part not in {"--bind", "0.0.0.0:8000"}] == fixed_arguments("gunicorn")


def test_image_contains_no_secrets():
    values = [arguments for name, arguments in instructions() if name in {"ENV", "ARG", "LABEL"}]

    assert not [arguments for arguments in values if re.search(r"SECRET|PASSWORD|TOKEN|API_KEY|_URL=.*@", arguments)]


def test_image_uses_a_tested_python_version():
    [version] = [argument[7:] for name, argument in instructions() if argument.startswith("PYTHON=")]

    assert version in re.search(r'^VERSIONS="([^"]+)"', (ROOT / "run").read_text(), re.MULTILINE)[1].split()[:3]


@pytest.mark.parametrize(("status", "is_healthy"), [(200, True), (500, False), (None, False)])
def test_image_health_check_follows_web_server_status(status, is_healthy):
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
        _, _, code = json.loads(last_arguments("HEALTHCHECK").partition("CMD ")[2])
        done = subprocess.run([sys.executable, "-c", code.replace(":8000", f":{port}")], capture_output=True)

    assert (done.returncode == 0) == is_healthy


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_hadolint_reports_no_issues():
    done = subprocess.run(["hadolint", "--ignore", "DL3008", DOCKERFILE], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout


def test_code_version_uses_commit_of_image(monkeypatch):
    code_version.cache_clear()
    monkeypatch.setenv("KGHARVEST_COMMIT", "0123456789abcdef")
    assert code_version() == f"{VERSION}+01234567"

    code_version.cache_clear()
    monkeypatch.delenv("KGHARVEST_COMMIT")
    assert code_version() != f"{VERSION}+01234567"
