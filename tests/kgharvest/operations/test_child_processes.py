import os
import signal
import sys
import time
from pathlib import Path

import pytest

from kgharvest.operations import child_processes
from kgharvest.operations.child_processes import Supervisor
from tests.refusals import refused

# Program that starts a child process and prints the child's process id once both run.
WITH_CHILD = """
import os, signal, subprocess, sys, time
stubborn_sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", stubborn_sleeper])
{ignore_sigterm}
time.sleep(0.5)
print(child.pid, flush=True)
time.sleep(60)
"""
IGNORE_SIGTERM = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_for_output(log: Path) -> str:
    deadline = time.monotonic() + 20
    while not log.read_text().endswith("\n"):
        assert time.monotonic() < deadline, "the program printed no output"
        time.sleep(0.05)
    return log.read_text()


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc to see other processes")
@pytest.mark.parametrize("ignore_sigterm", ["", IGNORE_SIGTERM], ids=["obeys SIGTERM", "ignores SIGTERM"])
def test_program_and_its_children_end_with_the_context(tmp_path, monkeypatch, ignore_sigterm):
    monkeypatch.setattr(child_processes, "GRACE_S", 0.5)

    with Supervisor(tmp_path) as programs:
        program = programs.start("parent", [sys.executable, "-c", WITH_CHILD.format(ignore_sigterm=ignore_sigterm)])
        child = int(wait_for_output(program.log))
        assert is_alive(child)

    deadline = time.monotonic() + 5
    while is_alive(child) and time.monotonic() < deadline:  # init reaps the orphan asynchronously
        time.sleep(0.02)
    assert not is_alive(child)
    assert program.process.returncode in (-signal.SIGTERM, -signal.SIGKILL)


def test_ended_program_is_reported_with_its_last_line(tmp_path):
    with Supervisor(tmp_path) as programs:
        program = programs.start("worker", [sys.executable, "-c", "print('no broker'); raise SystemExit(3)"])
        program.process.wait(20)

        with refused("ProgramEnded", match=r"The worker ended with status 3\. .*worker\.log: no broker"):
            programs.check()


def test_a_program_receives_the_environment(tmp_path):
    with Supervisor(tmp_path) as programs:
        program = programs.start(
            "printer", [sys.executable, "-c", "import os; print(os.environ['SETTING'])"], SETTING="on"
        )
        program.process.wait(20)

    assert program.log.read_text() == "on\n"


def test_ended_program_is_restarted(tmp_path, monkeypatch):
    monkeypatch.setattr(child_processes, "MIN_LIFETIME_S", 0)

    with Supervisor(tmp_path) as programs:
        program = programs.start("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"])
        os.killpg(program.process.pid, signal.SIGKILL)
        program.process.wait()

        assert programs.restart_ended() == [program]
        assert programs.restart_ended() == []
        assert programs.programs[0].process.pid != program.process.pid


def test_program_ending_immediately_is_not_restarted(tmp_path):
    with Supervisor(tmp_path) as programs:
        programs.start("broken", [sys.executable, "-c", "raise SystemExit('no')"]).process.wait()

        with refused("ProgramEnded"):
            programs.restart_ended()
