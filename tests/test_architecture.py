"""What may import what, and what must not be loaded by whom."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ["evaluation", "annotation", "kgharvest", "kgharvest.engine"]  # each may import those after it
ENGINE_IS_FREE_OF = {"django", "celery", "rest_framework"}


def layer_of(module: str) -> str | None:
    """Return the layer that `module` belongs to, or None if it is not ours."""
    fitting = [layer for layer in LAYERS if module == layer or module.startswith(layer + ".")]
    return max(fitting, key=len, default=None)


def modules() -> Iterator[tuple[str, Path]]:
    for folder in ("kgharvest", "annotation", "evaluation"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports_of(path: Path) -> Iterator[str]:
    """Yield all modules that a file imports anywhere, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def loaded_by(statement: str, *packages: str) -> list[str]:
    """Run `statement` in a new Python and return which of `packages` are loaded then."""
    code = f"{statement}; import sys; print(*[name for name in {packages!r} if name in sys.modules])"
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "kgharvest.settings"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout.split()


def test_imports_go_to_the_right_only():
    wrong = [
        f"{module} imports {imported}"
        for module, path in modules()
        for imported in imports_of(path)
        if layer_of(imported) and LAYERS.index(layer_of(imported)) < LAYERS.index(layer_of(module))
    ]

    assert wrong == []


def test_the_engine_names_neither_django_nor_celery():
    wrong = [
        f"{module} imports {imported}"
        for module, path in modules()
        for imported in imports_of(path)
        if layer_of(module) == "kgharvest.engine" and imported.partition(".")[0] in ENGINE_IS_FREE_OF
    ]

    assert wrong == []


def test_the_engine_imports_of_the_project_only_itself():
    wrong = [
        f"{module} imports {imported}"
        for module, path in modules()
        for imported in imports_of(path)
        if layer_of(module) == "kgharvest.engine" and layer_of(imported) not in (None, "kgharvest.engine")
    ]

    assert wrong == []


@pytest.mark.parametrize("module", ["kgharvest.engine", "kgharvest.engine.types", "kgharvest.engine.harvest"])
def test_importing_the_engine_loads_neither_django_nor_celery(module):
    assert loaded_by(f"import {module}", "django", "celery") == []


def test_starting_django_loads_no_torch():
    start = "import django; django.setup(); import kgharvest.urls, kgharvest.jobs.tasks"

    assert loaded_by(start, "torch", "transformers") == []
