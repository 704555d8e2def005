"""Update during operation: the last release's web server and worker run on the tables of this release.

    python benches/update.py LAST_RELEASE [--database postgres://user:password@host/empty]

LAST_RELEASE is a commit or tag. It is checked out next to this release, migrates the database, and serves pages and
jobs; then this release migrates. The old web server must serve every list as before, the old worker must run a job that
the old release creates, and a worker of this release must run one more. Otherwise, the exit status is 1 and a message
states the failure.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[1]
PORT = 18923
PAGES = ["/", "/harvests/", "/relations/", "/rounds/", "/reports/", "/knowledge/", "/projects/", "/readyz"]
JOBS = "from kgharvest.models import Job; print(*Job.objects.order_by('pk').values_list('status', flat=True))"
ACCOUNT = (
    "from django.contrib.auth.models import User; User.objects.create_superuser('ada', password='analytical engine')"
)
TIMEOUT_S = 120


class Release:
    """A checkout that runs with the settings of this bench."""

    def __init__(self, folder: Path, environment: dict[str, str]):
        self._run = {"cwd": folder, "env": environment}

    def manage(self, *arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **self._run).stdout

    @contextmanager
    def running(self, *arguments: str):
        process = subprocess.Popen([sys.executable, "-m", *arguments], **self._run)
        try:
            yield
        finally:
            process.terminate()
            if process.wait(TIMEOUT_S):
                sys.exit(f"{arguments[0]} ended with status {process.returncode}.")

    def harvest(self, relation: str) -> None:
        self.manage(
            "harvest", "--relation", relation, "--setting", "human", "--model", "embedded", "--max-tuples", "10"
        )


def cookies(response: httpx.Response, known: dict[str, str]) -> dict[str, str]:
    """Return the cookies to send. They are for https only, so the bench passes them explicitly."""
    sent = (cookie.split(";")[0].partition("=") for cookie in response.headers.get_list("set-cookie"))
    return known | {name: value for name, _, value in sent}


def open_pages() -> None:
    """Log in and open each list."""
    host = {"Host": "harvest.example.org", "X-Forwarded-Proto": "https"}
    with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", headers=host, timeout=30) as client:
        form = client.get("/accounts/login/")
        jar = cookies(form, {})
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form.text)[1]
        entered = client.post(
            "/accounts/login/",
            data={"username": "ada", "password": "analytical engine", "csrfmiddlewaretoken": token},
            headers={"Cookie": to_header(jar), "Referer": "https://harvest.example.org/accounts/login/"},
        )
        jar = cookies(entered, jar)
        for page in PAGES:
            status = client.get(page, headers={"Cookie": to_header(jar)}).status_code
            if status != 200:
                sys.exit(f"{page} answered with status {status}.")
    print(f"{len(PAGES)} pages of the last release answered with status 200")


def to_header(jar: dict[str, str]) -> str:
    return "; ".join(f"{name}={value}" for name, value in jar.items())


def wait_for_web() -> None:
    for _ in range(TIMEOUT_S):
        try:
            httpx.get(f"http://127.0.0.1:{PORT}/healthz").raise_for_status()
            return
        except httpx.HTTPError:
            time.sleep(1)
    sys.exit("The web server did not start.")


def wait_for_jobs(release: Release, n_jobs: int, worker: str) -> None:
    expected = ["succeeded"] * n_jobs
    for _ in range(TIMEOUT_S // 3):
        states = release.manage("shell", "-c", JOBS).splitlines()[-1].split()
        if states == expected:
            print(f"{worker} finished the job")
            return
        time.sleep(3)
    sys.exit(f"{worker} did not finish the job: {' '.join(states)}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("last_release")
    parser.add_argument("--database")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        environment = {
            **os.environ,
            "DATABASE_URL": options.database or f"sqlite:///{folder}/kgharvest.sqlite3",
            "SECRET_KEY": "known-to-everyone-and-good-only-for-this-bench-0123456789",
            "KGHARVEST_BASE_URL": "https://harvest.example.org",
            "KGHARVEST_DATA_DIR": str(folder / "var"),
            "OMP_NUM_THREADS": "1",
        }
        subprocess.run(["git", "clone", "-q", ROOT, folder / "old"], check=True)
        subprocess.run(["git", "-C", folder / "old", "checkout", "-q", options.last_release], check=True)
        old, new = Release(folder / "old", environment), Release(ROOT, environment)
        old.manage("migrate", "--verbosity", "0")
        old.manage("collectstatic", "--noinput", "--verbosity", "0")
        old.manage("import_relations", "kgharvest/relation_sets/demo.json")
        old.manage(
            "shell",
            "-c",
            ACCOUNT,
        )
        with old.running("gunicorn", "--bind", f"127.0.0.1:{PORT}", "kgharvest.wsgi"):
            with old.running("celery", "--app", "kgharvest", "worker", "--hostname", "old@%h"):
                wait_for_web()
                open_pages()
                print(new.manage("migrate").partition("Running migrations:")[2])
                open_pages()
                old.harvest("capital_of")
                wait_for_jobs(old, 1, "The old worker")
            old.harvest("prevent")
            with new.running("celery", "--app", "kgharvest", "worker", "--hostname", "new@%h"):
                wait_for_jobs(new, 2, "The new worker")
            open_pages()


if __name__ == "__main__":
    main()
