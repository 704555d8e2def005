"""Command line: help, version, and the commands `web` and `worker`."""

from __future__ import annotations

import socket
import sys

import pytest
from django.core.management import CommandError, call_command, get_commands

from kgharvest import code_version
from kgharvest.command_line import SECTIONS, CommandLine, is_ours, sections
from kgharvest.management.commands import web, worker
from kgharvest.operations import programs
from tests.kgharvest.test_settings import run_python
from tests.refusals import refused


def test_help_lists_each_command_of_the_project_once_and_before_those_of_django():
    text = CommandLine(["kgharvest"]).main_help_text()

    ours = [name for _, names in sections(get_commands()) for name in names]
    assert sorted(ours) == sorted(set(ours))
    assert {name for name, app in get_commands().items() if is_ours(app)} <= set(ours)
    assert text.index("  demo ") < text.index("  train_embedded_lm ") < text.index("Commands of Django")


def test_sections_name_existing_commands():
    assert [name for names in SECTIONS.values() for name in names if name not in get_commands()] == []


def test_sections_omit_commands_of_apps_that_are_not_installed():
    assert dict(sections({"demo": "evaluation", "new": "annotation", "check": "django.core"}))["Other"] == ["new"]


def test_version_is_printed_without_settings(tmp_path):
    done = run_python(tmp_path, "manage.py", "--version", DJANGO_SETTINGS_MODULE="settings_that_do_not_exist")

    assert done.stdout == f"kgharvest {code_version()}\n"


@pytest.mark.parametrize("command", ["web", "demo"])
def test_busy_port_is_reported(settings, command):
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings.PORT = str(server.getsockname()[1])
        with pytest.raises(CommandError, match=settings.PORT):
            call_command(command)


@pytest.mark.parametrize("port", ["70000", "-1", "http"])
def test_invalid_port_is_reported(settings, port):
    settings.PORT = port

    with refused("PortUnusable", match=port):
        programs.check_port()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "module", "options", "program"),
    [
        ("web", web, ["--workers", "4", "--bind", "127.0.0.1:1"], ["-m", "gunicorn"]),
        ("worker", worker, ["--queues", "urgent", "--hostname", "a@%h"], ["-m", "celery", "--app", "kgharvest"]),
    ],
)
def test_options_are_passed_to_the_program(monkeypatch, settings, name, module, options, program):
    settings.PORT = "0"
    executed = []
    monkeypatch.setattr(module.os, "execv", lambda path, command: executed.append(command))

    CommandLine(["manage.py", name, *options]).execute()

    [[python, *arguments]] = executed
    assert python == sys.executable
    assert arguments[: len(program)] == program
    assert arguments[-len(options) :] == options
