"""Documentation: working links, documented commands and settings, and help for each option."""

from __future__ import annotations

import re
from pathlib import Path

from django.core.management import get_commands, load_command_class

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
APPS = ("kgharvest", "annotation", "evaluation")
COMMANDS = sorted(name for name, app in get_commands().items() if app.partition(".")[0] in APPS)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub creates for the headings of a page."""
    headings = HEADING.findall(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def test_links_point_to_existing_files_and_headings() -> None:
    broken = {str(page.relative_to(ROOT)): links for page in PAGES if (links := broken_links(page))}

    assert broken == {}


def test_broken_links_are_detected(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One thing, and `code`\n[a](#one-thing-and-code) [b](#two) [c](page.md) [d](other.md) `[e](f)`\n")

    assert broken_links(page) == ["#two", "other.md"]


def test_each_command_is_documented_and_each_option_has_help() -> None:
    documentation = "".join(page.read_text() for page in PAGES)
    faults = []
    for name in COMMANDS:
        command = load_command_class(get_commands()[name], name)
        options = command.create_parser("manage.py", name)._actions
        if not re.search(rf"`{name}\b", documentation):
            faults.append(f"{name} is not documented")
        faults += [f"{name}: {option.dest} has no help" for option in options if not option.help]

    assert faults == []


def settings_read(text: str) -> set[str]:
    return set(re.findall(r"\bKGHARVEST_[A-Z0-9_]*[A-Z0-9]\b", text))


def test_each_setting_has_a_row_in_operations_docs() -> None:
    programs = [ROOT / "run", ROOT / "gunicorn.conf.py", *(path for app in APPS for path in (ROOT / app).rglob("*.py"))]
    read = set().union(*(settings_read(path.read_text()) for path in programs))
    rows = re.findall(r"^\| (`[^|]*) \|", (ROOT / "docs" / "operations.md").read_text(), re.MULTILINE)

    assert "KGHARVEST_DATA_DIR" in read
    assert sorted(read - settings_read(" ".join(rows))) == []
