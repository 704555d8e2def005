"""Notebooks: the stored outputs are those of the code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.notebooks.execute import FOLDER, execute

NUMBER = re.compile(r"[-−]?\d*\.\d+")
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def texts_of(notebook) -> Iterator[str]:
    """Yield the outputs of all code cells as texts."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            for lines in output["data"].values() if "data" in output else [output["text"]]:
                yield "".join(lines)


def numbers_in(texts: list[str]) -> list[float]:
    return [float(number.replace("−", "-")) for text in texts for number in NUMBER.findall(text)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_those_of_the_code(path: Path, monkeypatch):
    monkeypatch.chdir(FOLDER)
    notebook = json.loads(path.read_text())

    stored, computed = list(texts_of(notebook)), list(texts_of(execute(notebook)))

    assert [NUMBER.sub("#", text) for text in computed] == [NUMBER.sub("#", text) for text in stored]
    # The last digit differs between CPUs.
    assert numbers_in(computed) == pytest.approx(numbers_in(stored), rel=0.01, abs=0.01)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_name_no_folder_of_a_machine(path: Path):
    assert not re.search(r"/(?:home|root|work|tmp|Users)/", path.read_text())


def test_notebooks_are_listed_in_the_documentation():
    page = (FOLDER.parent / "python.md").read_text()

    assert [path.name for path in NOTEBOOKS if f"(notebooks/{path.name})" not in page] == []
    assert NOTEBOOKS
