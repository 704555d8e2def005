"""Command line: `kgharvest COMMAND`, which is `python manage.py COMMAND` in a checkout."""

import os
import sys
from collections.abc import Iterator
from textwrap import shorten

from django.core.exceptions import ImproperlyConfigured
from django.core.management import ManagementUtility, get_commands, load_command_class
from django.db import DatabaseError

from kgharvest import code_version
from kgharvest.errors import fault_of_machine

# Sections of `kgharvest help`. Other commands of this project follow under "Other", and those of Django at the end.
SECTIONS = {
    "Run kgharvest": ["demo", "web", "worker", "workers", "doctor"],
    "Studies": ["study"],
    "Relations and harvests": [
        *("import_relations", "export_relations", "import_prompts", "harvest", "import_tuples", "export_tuples"),
        *("link_entities", "evaluate_scores", "import_kg", "export_kg", "probe"),
    ],
    "Rounds and reports": [
        *("open_round", "judge_tuples", "import_judgments", "export_judgments", "report", "pack", "verify", "push"),
    ],
    "Projects and people": [
        *("members", "createsuperuser", "changepassword", "token", "remove_second_factor", "erase_person", "audit"),
    ],
    "Installation": ["migrate", "backup", "restore", "copy_database"],
}
PROJECT = ("kgharvest", "annotation", "evaluation")  # packages with commands
WIDTH = 120


def main() -> None:
    """Run the command in sys.argv. Expected errors are printed as one sentence, with exit status 1."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kgharvest.settings")
    if sys.argv[1:] in (["--version"], ["version"]):
        print(f"kgharvest {code_version()}")  # noqa: T201
        return
    try:
        CommandLine(sys.argv).execute()
    except ImproperlyConfigured as error:
        sys.exit(f"Error: {error}")
    except (DatabaseError, OSError) as error:  # errors of Django's own commands
        if not (reason := fault_of_machine(error)):
            raise
        sys.exit(f"Error: {reason}")


class CommandLine(ManagementUtility):
    """Django's command line, whose help lists the commands of this project first."""

    def main_help_text(self, commands_only: bool = False) -> str:
        if commands_only:
            return str(super().main_help_text(commands_only))
        lines = [f"Usage: {self.prog_name} COMMAND [OPTIONS]", f"       {self.prog_name} help COMMAND", ""]
        for title, names in sections(get_commands()):
            lines += [title, *(f"  {name:<22}{summary_of(name)}" for name in names), ""]
        others = " ".join(sorted(name for name, app in get_commands().items() if not is_ours(app)))
        return "\n".join([*lines, "Commands of Django", f"  {others}"])


def sections(app_of_command: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the title and the installed commands of each section.

    The last section has all remaining commands of this project.
    """
    for title, names in SECTIONS.items():
        yield title, [name for name in names if name in app_of_command]
    listed = {name for names in SECTIONS.values() for name in names}
    yield "Other", sorted(name for name, app in app_of_command.items() if is_ours(app) and name not in listed)


def is_ours(app: str) -> bool:
    return app.partition(".")[0] in PROJECT


def summary_of(name: str) -> str:
    """Return the first sentence of a command's help."""
    text = " ".join(load_command_class(get_commands()[name], name).help.split())
    return shorten(text.partition(". ")[0].rstrip("."), WIDTH - 24, placeholder=" …")
