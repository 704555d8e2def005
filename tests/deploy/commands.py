"""Commands of web servers and workers. Images and services must start the same processes as `web` and `worker`."""

from pathlib import Path

from kgharvest.operations.programs import web_command, worker_command

ROOT = Path(__file__).resolve().parents[2]


def fixed_arguments(program: str) -> list[str]:
    """Return the arguments of Python for gunicorn or celery, without the address and the default configuration file."""
    _, *arguments = {"gunicorn": web_command, "celery": worker_command}[program]()
    for option in ("--bind", "--config"):
        if option in arguments:
            start = arguments.index(option)
            del arguments[start : start + 2]
    return arguments
