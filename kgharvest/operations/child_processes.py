"""Supervisor that starts, restarts, and stops programs as child processes. The programs never outlive this process."""

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

# A terminated worker finishes its current job. If this takes longer than GRACE_S, the worker is killed, and the job is
# repeated later.
GRACE_S = 10
MIN_LIFETIME_S = 10  # a program that ends within this time is not restarted


@dataclass
class Program:
    name: str
    log: Path
    process: subprocess.Popen[bytes]
    command: Sequence[str]
    environment: dict[str, str]
    started_at: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """Raise ProgramEnded if the program has ended."""
        if self.process.poll() is not None:
            lines = [line.strip() for line in self.log.read_text(errors="replace").split("\n") if line.strip()]
            raise DomainError(
                "ProgramEnded",
                f"The {self.name} ended with status {self.process.returncode}. Last line of its output in {self.log}: "
                f"{lines[-1] if lines else '(nothing)'}",
            )

    def kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Supervisor:
    """Context manager for running programs. On exit, all programs and their descendants have ended.

    Each program has its own session, so Ctrl-C in a terminal reaches only this process. It then stops the whole process
    group of every program, including the child processes of gunicorn and Celery.
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
            process = subprocess.Popen(  # noqa: S603 - trusted commands
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
        """Restart programs that have ended, and return them.

        Raises ProgramEnded if a program ended within MIN_LIFETIME_S.
        """
        ended = [program for program in self.programs if program.process.poll() is not None]
        for program in ended:
            if time.monotonic() - program.started_at < MIN_LIFETIME_S:
                program.check()
            program.kill_group()
            self.programs.remove(program)
            self.start(program.name, program.command, **program.environment)
        return ended

    def check(self) -> None:
        for program in self.programs:
            program.check()

    def stop(self) -> None:
        """Terminate all programs. Kill their process groups after GRACE_S, or immediately on a second Ctrl-C.

        Only the programs themselves receive SIGTERM. If the child processes of a Celery worker received the signal as
        well, the worker would lose its job.
        """
        for program in self.programs:
            program.process.terminate()
        try:
            for program in self.programs:
                with suppress(subprocess.TimeoutExpired):
                    program.process.wait(GRACE_S)
        finally:
            for program in self.programs:
                program.kill_group()
            self.programs.clear()
