"""The base of this project's commands, and jobs done in their process with a progress bar."""

from __future__ import annotations

import logging
import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, OperationalError, ProgrammingError, connection
from django.db.migrations.executor import MigrationExecutor
from tqdm import tqdm

from kgharvest.engine.language_models.networks.placement import (
    DEFAULT_DEVICE,
    DEFAULT_DTYPE,
    DEVICE_HELP,
    DTYPE_HELP,
    DTYPES,
    device_named,
)
from kgharvest.engine.types import EngineError, Progress
from kgharvest.errors import DomainError, fault_of_machine
from kgharvest.jobs import ledger
from kgharvest.models import Job

LARGEST = 2**31 - 1  # number that is given; the API takes none above it either


class Error(CommandError):
    """What Django prints on standard error as "Error: ..." before it exits with status 1."""


class DomainCommand(BaseCommand):
    """A command whose refusals are one sentence on standard error and exit status 1."""

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **options)
        parser.called_from_command_line = False  # its errors are raised, not printed below its usage
        return parser

    def run_from_argv(self, argv: list[str]) -> None:
        try:
            super().run_from_argv(argv)
        except CommandError as error:  # of the parser; those of `handle` do not get here
            self.stderr.write(f"{error}; see python manage.py {argv[1]} --help")
            sys.exit(error.returncode)

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            output = super().execute(*args, **options)
            self.stdout.flush()  # a disk that is full shows here and not when Python ends
        except (DomainError, EngineError) as refusal:
            raise Error(str(refusal)) from refusal
        except OverflowError as error:
            raise Error("A number is larger than what the database holds; look its number up again.") from error
        except UnicodeEncodeError as error:
            odd = error.object[error.start : error.end]
            raise Error(f"{odd!r:.40} cannot be written as {error.encoding}; give and print texts in UTF-8.") from error
        except BrokenPipeError:  # whoever reads, such as `head`, has enough
            _discard_unwritable_output()
            return None
        except (DatabaseError, OSError) as error:
            _discard_unwritable_output()
            if reason := _is_not_set_up(error) or fault_of_machine(error):
                raise Error(reason) from error
            raise
        except KeyboardInterrupt:
            raise Error("interrupted", returncode=130) from None
        return output


def _discard_unwritable_output() -> None:
    """Have Python, which writes what is left when it ends, not fail then."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_not_set_up(error: Exception) -> str | None:
    """Return what to do where tables or columns lack."""
    with suppress(DatabaseError):  # one that does not answer cannot be asked
        if isinstance(error, OperationalError | ProgrammingError) and has_pending_migrations():
            return "The database is not set up; run python manage.py migrate first."
    return None


def add_project_argument(parser: CommandParser) -> None:
    parser.add_argument("--project", metavar="SLUG", help="in which this is made; needed where there are several")


def positive(text: str) -> int:
    """The type of an argument that is 1 or more."""
    return _whole_number(text, 1)


def natural(text: str) -> int:
    """The type of an argument that is 0 or more."""
    return _whole_number(text, 0)


def _whole_number(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= LARGEST:
        raise ArgumentTypeError(f"{text!r:.40} is no whole number from {least} to {LARGEST:,}")
    return number


def add_placement_arguments(parser: CommandParser) -> None:
    """Add where the LM runs and in which number format; `check_placement` says whether the two go together."""
    parser.add_argument("--device", type=_device, default=DEFAULT_DEVICE, help=DEVICE_HELP)
    parser.add_argument("--dtype", choices=DTYPES, default=DEFAULT_DTYPE, help=DTYPE_HELP)


def _device(text: str) -> str:
    try:
        return device_named(text)
    except EngineError as error:
        raise ArgumentTypeError(str(error)) from error


def has_pending_migrations() -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))


@contextmanager
def warnings_unlogged() -> Iterator[None]:
    """Keep warnings about failed jobs out of the log: the command prints the reason itself."""
    logger = logging.getLogger("kgharvest")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def run_to_the_end(job: Job, bar: ProgressBar) -> None:
    try:
        ledger.run_job(job.pk, bar)
    except KeyboardInterrupt:
        ledger.cancel(job)
        raise


class ProgressBar:
    """Shows progress on standard error: one bar, reset with each stage."""

    def __init__(self, label: str):
        self._label = label
        self._bar = tqdm(desc=label, disable=None, leave=False)
        self._stage = ""

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def __call__(self, progress: Progress) -> None:
        if progress.stage != self._stage:
            self._stage = progress.stage
            self._bar.reset(progress.total)
            self._bar.set_description_str(f"{self._label}: {progress.stage}")
        self._bar.total = progress.total
        self._bar.update(progress.done - self._bar.n)
