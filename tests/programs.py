"""Project commands in separate processes that start quickly."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]

# Programs are forks of a process that has imported these packages, as importing takes longer than most programs run.
# The packages read no settings. Project modules are not imported before the fork.
PACKAGES = [
    "celery.__main__",
    "celery.bin.celery",
    "celery.bin.worker",
    "celery.concurrency.prefork",
    "django.contrib.postgres.fields",
    "django.core.management",
    "django.test",
    "httpx",
    "kombu.transport.filesystem",
    "krippendorff",
    "psycopg",
    "scipy.optimize",
    "scipy.signal",
    "scipy.stats",
]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__, *PACKAGES])


def start_program(arguments: list[str], environment: dict[str, str], stdout: Path, stderr: Path) -> BaseProcess:
    """Start manage.py or celery in a new process group, appending its output to the two files."""
    program = FORKS.Process(target=_run, args=[arguments, environment, stdout, stderr])
    program.start()
    return program


def _run(arguments: list[str], environment: dict[str, str], stdout: Path, stderr: Path) -> None:
    os.setsid()
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    with stdout.open("ab") as out, stderr.open("ab") as err:
        os.dup2(out.fileno(), sys.stdout.fileno())
        os.dup2(err.fileno(), sys.stderr.fileno())
    sys.argv = arguments
    if arguments[0] == "celery":
        runpy.run_module("celery", run_name="__main__")
    else:
        runpy.run_path(arguments[0], run_name="__main__")


def run_program(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program and return its exit code and output."""
    with TemporaryDirectory() as folder:
        stdout, stderr = Path(folder) / "stdout", Path(folder) / "stderr"
        program = start_program(arguments, environment, stdout, stderr)
        try:
            program.join()
        finally:
            program.kill()  # if the wait was interrupted
        return subprocess.CompletedProcess(arguments, program.exitcode, stdout.read_text(), stderr.read_text())
