"""systemd units: they pass `systemd-analyze verify` and run the same commands as ./run."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
from threading import Thread

import httpx
import pytest
from django.conf import settings

from tests.deploy.commands import ROOT, fixed_arguments

UNITS = ROOT / "deploy" / "systemd"
SERVICES = sorted(UNITS.glob("*.service"))
WORKERS = ["kgharvest-worker@.service", "kgharvest-gpu@.service", "kgharvest-urgent.service"]


def service(name: str) -> dict[str, str]:
    """Parse the [Service] section. For repeated keys, the last value is returned."""
    section = (UNITS / name).read_text().partition("[Service]\n")[2].partition("\n[Install]")[0]
    return dict(re.findall(r"^(\w+)=(.*)$", section, re.MULTILINE))


def exec_start(name: str) -> list[str]:
    return service(name)["ExecStart"].removeprefix("/usr/bin/env .venv/bin/python ").split()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_analyze_accepts_units(tmp_path):
    for path in UNITS.glob("*.[st]*"):
        (tmp_path / path.name.replace("@.", "@0.")).write_text(path.read_text())

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *sorted(tmp_path.iterdir())], capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_web_service_runs_the_command_of_web():
    assert exec_start("kgharvest-web.service") == fixed_arguments("gunicorn")


@pytest.mark.parametrize("name", WORKERS)
def test_worker_services_run_the_celery_command_with_unique_hostnames(name):
    command, names = fixed_arguments("celery"), [exec_start(worker)[-1] for worker in WORKERS]

    assert exec_start(name)[: len(command)] == command
    assert len({name.replace("%i", "1") for name in names}) == len(names)
    assert exec_start(name)[-2] == "--hostname"


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_services_run_unprivileged_with_strict_protection(path):
    unit = service(path.name)

    assert (unit["User"], unit["ProtectSystem"], unit["NoNewPrivileges"]) == ("kgharvest", "strict", "yes")
    assert unit["EnvironmentFile"] == "/etc/kgharvest/kgharvest.env"


def test_settings_in_example_env_file_are_documented():
    names = re.findall(r"^([A-Z][A-Z_]+)=", (UNITS / "kgharvest.env.example").read_text(), re.MULTILINE)
    documented = (ROOT / "docs" / "operations.md").read_text() + (ROOT / "docs" / "deployment.md").read_text()

    assert [name for name in names if f"`{name}`" not in documented] == []


def test_socket_can_bind_before_network_address_exists():
    """At boot, systemd opens sockets before the private network address is configured."""
    assert "FreeBind=yes\n" in (UNITS / "kgharvest-web.socket").read_text()


# Web server replacement


def start(listener: socket.socket) -> subprocess.Popen:
    """Start gunicorn as systemd does: the listening socket is passed as file descriptor 3."""
    program = (
        "import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()));"
        " os.execv(sys.executable, [sys.executable, '-m', 'gunicorn', 'tests.deploy.tiny_site:application'])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, str(listener.fileno())],
        cwd=ROOT,
        env={
            "PATH": "/usr/bin:/bin",
            "DJANGO_SETTINGS_MODULE": "kgharvest.settings",
            "KGHARVEST_DATA_DIR": str(settings.DATA_DIR),
        },
        pass_fds=[listener.fileno()],
    )


def test_requests_wait_while_web_server_is_replaced():
    answers: list[str] = []

    def fetch(url: str) -> None:
        answers.append(httpx.get(url, timeout=60).raise_for_status().text)

    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        listener.set_inheritable(True)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        old = start(listener)
        fetch(url)
        old.send_signal(signal.SIGTERM)
        assert old.wait(60) == 0
        waiting = [Thread(target=fetch, args=[url]) for _ in range(3)]
        for thread in waiting:
            thread.start()
        new = start(listener)
        for thread in waiting:
            thread.join()
        new.send_signal(signal.SIGTERM)
        assert new.wait(60) == 0

    assert answers == [str(old.pid)] + [str(new.pid)] * 3
