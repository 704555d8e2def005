"""docs/reproduction.md: a complete list of tables and figures, with commands, options, and studies that exist."""

from __future__ import annotations

import re
from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from pathlib import Path

from django.core.management import get_commands, load_command_class

from evaluation.studies.files import built_in_studies

PAGE = Path(__file__).parent.parent / "docs" / "reproduction.md"
APPS = ("kgharvest", "annotation", "evaluation")
COMMANDS = {name for name, app in get_commands().items() if app.partition(".")[0] in APPS}
CODE = re.compile(r"`([^`\n]+)`")
OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]*")
NUMBERED = re.compile(r"\b(Table|Figure)s? (\d+)(?:(, | and | to )(\d+))?(?:(, | and )(\d+))?")
LISTED = {
    "BertNet": {"Table": 5, "Figure": 8},
    "Soft prompts": {"Table": 10, "Figure": 1},
    "BERTese": {"Table": 4, "Figure": 1},
    "AutoPrompt": {"Table": 8, "Figure": 3},
}


def sections(text: str) -> dict[str, list[list[str]]]:
    """Return the cells of the table rows in each section, without the heading of the table."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    rows = [
        [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")] for part in parts[1::2]
    ]
    return dict(zip(parts[::2], (row[1:] for row in rows), strict=True))


def actions_of(parser: ArgumentParser) -> Iterator[Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, _SubParsersAction):
            for subparser in action.choices.values():
                yield from actions_of(subparser)


def options_of(command: str) -> dict[str, Action]:
    parser = load_command_class(get_commands()[command], command).create_parser("manage.py", command)
    return {option: action for action in actions_of(parser) for option in action.option_strings}


def faults_of_row(row: list[str]) -> Iterator[str]:
    """Yield the options, choices, and studies of a row that do not exist for any command of the row."""
    spans = CODE.findall(" ".join(row))
    commands = [words[0] for words in map(str.split, spans) if words[0] in COMMANDS]
    of_row = {option: action for command in commands for option, action in options_of(command).items()}
    for span in spans:
        words = span.split()
        options = options_of(words[0]) if words[0] in COMMANDS else of_row
        if words[:2] == ["study", "run"] and words[2] not in {"NAME", *built_in_studies()}:
            yield f"{span}: no built-in study {words[2]}"
        for option, values in zip(OPTION.findall(span), OPTION.split(span)[1:], strict=True):
            if option not in options:
                yield f"{span}: no option {option}"
            elif choices := options[option].choices:
                yield from (
                    f"{span}: {option} has no choice {value}" for value in values.split() if value not in choices
                )
        if len(words) > 1 and words[1].startswith("--") and words[0] not in COMMANDS and not words[0].startswith("--"):
            yield f"{span}: no command {words[0]}"


def numbers_in(cell: str) -> set[tuple[str, int]]:
    found = set()
    for kind, first, *pairs in NUMBERED.findall(cell):
        found.add((kind, int(first)))
        last = int(first)
        for separator, number in zip(pairs[::2], pairs[1::2], strict=True):
            if number:
                found |= {(kind, n) for n in range(last if separator == " to " else int(number), int(number) + 1)}
                last = int(number)
    return found


def test_every_table_and_figure_is_listed() -> None:
    listed = {
        section: set().union(*(numbers_in(row[0]) for row in rows))
        for section, rows in sections(PAGE.read_text()).items()
    }

    expected = {
        section: {(kind, number) for kind, most in kinds.items() for number in range(1, most + 1)}
        for section, kinds in LISTED.items()
    }
    assert listed == expected


def test_every_row_has_a_command_or_a_reason() -> None:
    for rows in sections(PAGE.read_text()).values():
        for row in rows:
            assert len(row) == 3, row
            assert CODE.search(row[1]) or (row[1] == "none" and row[2] != "none"), row


def test_commands_options_and_studies_on_the_page_exist() -> None:
    rows = [row for rows in sections(PAGE.read_text()).values() for row in rows]

    assert [fault for row in rows for fault in faults_of_row(row)] == []
    assert list(faults_of_row(["`study run NAME --small`"])) == []


def test_wrong_commands_options_choices_and_studies_are_detected() -> None:
    for wrong in (
        "`harvest --sets human`",
        "`harvest --setting humane`",
        "`harvester --setting human`",
        "`study run bertnet-table9`",
        "`report` with `--novelty`",
    ):
        assert list(faults_of_row([wrong])), wrong


def test_ranges_of_numbers_are_read() -> None:
    assert numbers_in("Tables 7 to 9 and 11, Figure 2, Tables 3 and 4") == {
        *(("Table", number) for number in (7, 8, 9, 11, 3, 4)),
        ("Figure", 2),
    }
