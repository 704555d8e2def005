"""Base class and shared arguments of management commands, and functions that run jobs in the command's process."""

from __future__ import annotations

import logging
import os
import sys
from argparse import ArgumentTypeError
from contextlib import suppress
from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, OperationalError, ProgrammingError, connection
from django.db.migrations.executor import MigrationExecutor

from kgharvest.engine.language_models.networks.placement import (
    DEFAULT_DEVICE,
    DEFAULT_DTYPE,
    DEVICE_HELP,
    DTYPE_HELP,
    DTYPES,
    device_named,
)
from kgharvest.engine.types import EngineError
from kgharvest.environment import PROGRAM
from kgharvest.errors import DomainError, NotFound, fault_of_machine
from kgharvest.jobs import ledger
from kgharvest.models import Job
from kgharvest.progress_bar import ProgressBar

LARGEST = 2**31 - 1  # the API has the same limit


class Error(CommandError):
    """An expected error. It is printed as "Error: ..." on standard error, followed by exit status 1."""


class DomainCommand(BaseCommand):
    """Command that reports expected errors as one sentence on standard error, with exit status 1."""

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        self._called_from_command_line = False  # raise errors of parsers and subparsers, without printing the usage
        return super().create_parser(prog_name, subcommand, **options)

    def run_from_argv(self, argv: list[str]) -> None:
        try:
            super().run_from_argv(argv)
        except CommandError as error:  # an error of the parser; the superclass handles errors of `handle`
            self.stderr.write(f"{error}; see {PROGRAM} {argv[1]} --help")
            sys.exit(error.returncode)

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            output = super().execute(*args, **options)
            self.stdout.flush()  # flush now, so that a full disk is reported here and not at interpreter exit
        except (DomainError, EngineError) as error:
            raise Error(str(error)) from error
        except OverflowError as error:
            raise Error("A number is too large for the database. Check the numbers that you entered.") from error
        except UnicodeEncodeError as error:
            text = error.object[error.start : error.end]
            raise Error(f"{text!r:.40} cannot be written as {error.encoding}. Use a UTF-8 terminal or file.") from error
        except BrokenPipeError:  # the program that reads the output, for example `head`, has closed the pipe
            _discard_unwritable_output()
            return None
        except (DatabaseError, OSError) as error:
            _discard_unwritable_output()
            with suppress(DatabaseError):  # the check fails if the database is unavailable
                if isinstance(error, OperationalError | ProgrammingError) and has_pending_migrations():
                    raise Error(f"The database is not set up. Run {PROGRAM} migrate first.") from error
            if reason := fault_of_machine(error):
                raise Error(reason) from error
            raise
        except KeyboardInterrupt:
            raise Error("Interrupted. Run the command again to continue or repeat it.", returncode=130) from None
        return output


class ProgramCommand(DomainCommand):
    """Command that is replaced by another program and passes all arguments, including options, to it."""

    arguments_help: str

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("args", nargs="*", metavar="ARGUMENT", help=self.arguments_help)

    def run_from_argv(self, argv: list[str]) -> None:
        is_help = argv[2:] in (["--help"], ["-h"])
        super().run_from_argv(argv if is_help else [*argv[:2], "--", *argv[2:]])


def _discard_unwritable_output() -> None:
    """Suppress the error when the interpreter flushes stdout at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def find_user(username: str):
    user = get_user_model().objects.filter(username=username).first()
    if user is None:
        raise NotFound(f"User {username!r:.80} not found. Check the name, or use members --invite ROLE for a new user.")
    return user


def add_project_argument(parser: CommandParser) -> None:
    parser.add_argument("--project", metavar="SLUG", help="project of new data; required if there are several projects")


def _integer(text: str, minimum: int) -> int:
    """Return an argument type for integers of at least `minimum`."""
    try:
        number = int(text)
    except ValueError:
        number = minimum - 1
    if not minimum <= number <= LARGEST:
        raise ArgumentTypeError(f"{text!r:.40} is not an integer from {minimum} to {LARGEST:,}")
    return number


positive = partial(_integer, minimum=1)
natural = partial(_integer, minimum=0)


def add_placement_arguments(parser: CommandParser) -> None:
    """Add --device and --dtype. `check_placement` validates the combination."""
    add_device_argument(parser)
    parser.add_argument("--dtype", choices=DTYPES, default=DEFAULT_DTYPE, help=DTYPE_HELP)


def add_device_argument(parser: CommandParser) -> None:
    parser.add_argument("--device", type=_device, default=DEFAULT_DEVICE, help=DEVICE_HELP)


def _device(text: str) -> str:
    try:
        return device_named(text)
    except EngineError as error:
        raise ArgumentTypeError(str(error)) from error


def has_pending_migrations() -> bool:
    if connection.vendor == "sqlite" and not os.path.exists(connection.settings_dict["NAME"]):
        return True  # without this check, connecting would fail or create an empty file
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def run_to_the_end(job: Job) -> None:
    """Run the job with a progress bar. If it fails, nothing is logged, because the command prints the reason."""
    logger = logging.getLogger("kgharvest")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with ProgressBar(str(job)) as bar:
            ledger.run_job(job.pk, bar)
    except KeyboardInterrupt:
        ledger.cancel(job)
        raise
    finally:
        logger.setLevel(level)
