"""Supervisor of child processes: start, restart and stop programs that live no longer than this one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from kgharvest.errors import DomainError

# A worker finishes its current job when it is asked to stop; after so long it is killed, and the job is redone later.
GRACE_S = 10
LIVES_AT_LEAST_S = 10  # a program that ends sooner would end again


@dataclass
class Program:
    name: str
    log: Path
    process: subprocess.Popen[bytes]
    command: Sequence[str]
    environment: dict[str, str]
    started_at: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """Raise ProgramEnded if the program does not run any more."""
        if self.process.poll() is not None:
            raise DomainError(
                "ProgramEnded",
                f"The {self.name} ended with status {self.process.returncode}; its output is in {self.log} "
                f"and ends with: {last_line(self.log)}",
            )

    def wait(self) -> None:
        """Wait for the program to end, but no longer than its grace."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_S)

    def kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Supervisor:
    """Context in which programs run; all of them, and all that they started, have ended when it closes.

    Each program gets a session of its own. Ctrl-C in a terminal therefore reaches this process alone, which then stops
    every program's whole group: gunicorn's and Celery's children cannot outlive it.
    """

    log_dir: Path
    programs: list[Program] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str], **environment: str) -> Program:
        log = self.log_dir / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - the commands are ours
                command,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        program = Program(name, log, process, command, environment)
        self.programs.append(program)
        return program

    def restart_ended(self) -> list[Program]:
        """Start programs again that have ended; return them. Raises ProgramEnded for one that ended at once."""
        ended = [program for program in self.programs if program.process.poll() is not None]
        for program in ended:
            if time.monotonic() - program.started_at < LIVES_AT_LEAST_S:
                program.check()
            program.kill_group()
            self.programs.remove(program)
            self.start(program.name, program.command, **program.environment)
        return ended

    def check(self) -> None:
        for program in self.programs:
            program.check()

    def stop(self) -> None:
        """Ask all programs to end and kill what is left of their groups after the grace, or at once on a second Ctrl-C.

        Only a program itself is asked: a Celery worker whose children are told to end as well loses its current job.
        """
        for program in self.programs:
            program.process.terminate()
        try:
            for program in self.programs:
                program.wait()
        finally:
            for program in self.programs:
                program.kill_group()
            self.programs.clear()


def last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "(nothing)")
