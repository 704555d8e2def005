"""Commands that start web servers and workers, and checks before they start."""

import socket
import sys
from importlib.util import find_spec

from django.conf import settings

from kgharvest.environment import IS_CHECKOUT
from kgharvest.errors import DomainError

HOST = "127.0.0.1"


def own_command(*arguments: str) -> list[str]:
    """Return a command of kgharvest that works in any working directory."""
    program = [str(settings.BASE_DIR / "manage.py")] if IS_CHECKOUT else ["-m", "kgharvest"]
    return [sys.executable, *program, *arguments]


def web_command(*arguments: str) -> list[str]:
    """Return the command of the web server on settings.PORT: gunicorn if it is installed, otherwise waitress alone.

    arguments: options of gunicorn, such as --bind and --workers. Without gunicorn, only --bind is valid.
    """
    server = ["kgharvest.operations.http_server"]
    if find_spec("gunicorn"):
        server = ["gunicorn", "--config", str(settings.BASE_DIR / "gunicorn.conf.py")]
    return [sys.executable, "-m", *server, "--bind", f"{HOST}:{settings.PORT}", "kgharvest.wsgi", *arguments]


def worker_command(*arguments: str) -> list[str]:
    """Return the command of a worker. arguments: options of Celery, such as --queues and --concurrency."""
    return [sys.executable, "-m", "celery", "--app", "kgharvest", "worker", "--loglevel", "INFO", *arguments]


def check_port() -> None:
    """Raise DomainError PortUnusable unless a server can listen on settings.PORT."""
    try:
        with socket.create_server((HOST, int(settings.PORT))):
            pass
    except (OSError, OverflowError, ValueError) as error:
        raise DomainError(
            "PortUnusable",
            f"Port {settings.PORT} is in use or not a valid port number. Set the variable PORT to another port, "
            "for example PORT=8001.",
        ) from error
