"""Architecture rules: permitted imports and links between packages, and modules that must not be loaded."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from django.utils.module_loading import import_string

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ["evaluation", "annotation", "kgharvest"]
# Optional apps, by URL namespace and template folder
CONTRIB = dict.fromkeys(["crawling", "knowledge_graphs", "probing", "publishing", "recruiting"], "kgharvest.contrib")
APPS = ["kgharvest.contrib", *PACKAGES]  # each may import, and link to, the later ones
LIBRARIES = ["kgharvest.engine", "kgharvest.statistics"]  # pure: each imports no other package of the project
ENTRY_POINTS = "kgharvest.entry_points"  # imports only the standard library; the libraries may import it
LAYERS = [*APPS, *LIBRARIES, ENTRY_POINTS]
FORBIDDEN_IN_LIBRARIES = {"django", "celery", "rest_framework"}
URLS_OF_APPS = re.compile(r"""{%\s*url\s+["'](\w+):""")
FILES_OF_APPS = re.compile(r"""{%\s*(?:include|extends|static)\s+["'](\w+)/""")
NEEDS_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
SUBPACKAGES = {
    "kgharvest": "accounts api audit bulk chat_models client contrib embedded_lm engine entities events harvests jobs"
    " knowledge operations pages relations sqlite statistics tables webhooks",
    "kgharvest/harvests": "parts",
    "kgharvest/engine": "language_models prompt_learning prompts",
    "annotation": "exchange gold invites judges judging monitoring quality questionnaire rounds training",
    "evaluation": "comparisons evidence rehearsals rendering reports scores sharing studies",
    "kgharvest/contrib": " ".join(CONTRIB),
    "kgharvest/contrib/knowledge_graphs": "imports judged_kg lm_kbc",
    "kgharvest/contrib/probing": "probes prompt_learning text_tasks",
    "kgharvest/contrib/publishing": "datasheets packs preregistration statements",
    "kgharvest/contrib/recruiting": "panels pay prolific",
}
OTHER_FOLDERS = {"management", "migrations", "static", "templatetags", "relation_sets"}  # Django folders and data
PROJECT_MODULES = {"kgharvest.settings", "kgharvest.registries", "kgharvest.urls"}  # assemble the apps
PYTHON_API = "kgharvest"  # the package itself offers functions of later apps, which it imports on first use


def layer_of(module: str) -> str | None:
    """Return the layer of `module`, or None if it is not part of the project."""
    fitting = [layer for layer in LAYERS if module == layer or module.startswith(layer + ".")]
    return max(fitting, key=len, default=None)


def violates_order(source: str, target: str) -> bool:
    return LAYERS.index(target) < LAYERS.index(source)


def modules() -> Iterator[tuple[str, Path]]:
    for folder in PACKAGES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def templates() -> Iterator[tuple[str, Path]]:
    """Yield (app, template). Templates of no app belong to kgharvest, the project."""
    for path in sorted((ROOT / "templates").rglob("*.*")):
        folder = path.relative_to(ROOT / "templates").parts[0]
        yield app_of(folder) or "kgharvest", path


def app_of(name: str) -> str | None:
    """Return the app with the URL namespace or template folder `name`, or None."""
    return CONTRIB.get(name) or (name if name in APPS else None)


@cache
def imports_and_strings_of(path: Path) -> tuple[list[str], list[str]]:
    imports, strings = [], []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            imports += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.append(node.value)
    return imports, strings


def imports_of(path: Path) -> list[str]:
    """Return all modules that a file imports, including imports inside functions."""
    return imports_and_strings_of(path)[0]


def strings_of(path: Path) -> list[str]:
    return imports_and_strings_of(path)[1]


def loaded_by(statement: str, *packages: str) -> list[str]:
    """Run `statement` in a new Python process and return the loaded modules among `packages`."""
    code = f"{statement}; import sys; print(*[name for name in {packages!r} if name in sys.modules])"
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "kgharvest.settings"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout.split()


def test_imports_follow_the_order_of_layers():
    wrong = [
        f"{module} imports {imported}"
        for module, path in modules()
        if module != PYTHON_API
        for imported in imports_of(path)
        if layer_of(imported) and violates_order(layer_of(module), layer_of(imported))
    ]

    assert wrong == []


def test_only_commands_import_commands():
    wrong = [
        f"{module} imports {imported}"
        for module, path in modules()
        if ".management." not in module
        for imported in imports_of(path)
        if layer_of(imported) and ".management.commands." in imported
    ]

    assert wrong == []


def test_names_in_strings_follow_the_order_of_layers():
    """Examples: reverse("evaluation:report"), render(request, "evaluation/..."), and "evaluation.x.y"."""
    named = re.compile(rf"({'|'.join([*APPS, *CONTRIB])})([:/]|(?:\.\w+)+$)")
    wrong = [
        f"{module} names {text}"
        for module, path in modules()
        if module not in {*PROJECT_MODULES, PYTHON_API, ENTRY_POINTS}  # names of groups are not modules
        for text in strings_of(path)
        if (match := named.match(text)) and violates_order(layer_of(module), layer_of(text) or app_of(match[1]))
    ]

    assert wrong == []


def test_template_links_follow_the_order_of_layers():
    wrong = [
        f"{path.relative_to(ROOT)} names {named}"
        for app, path in templates()
        for pattern in (URLS_OF_APPS, FILES_OF_APPS)
        for named in pattern.findall(path.read_text(encoding="utf-8"))
        if app_of(named) and violates_order(app, app_of(named))
    ]

    assert wrong == []


@NEEDS_TORCH
def test_paths_in_registries_can_be_imported():
    for path in strings_of(ROOT / "kgharvest/registries.py"):
        if path.partition(".")[0] in APPS and " " not in path:
            import_string(path)


@pytest.mark.parametrize("folder", SUBPACKAGES)
def test_apps_have_the_expected_subpackages(folder):
    """A new noun needs a new subpackage, listed here. docs/ARCHITECTURE.md describes the contents of each."""
    folders = {path.name for path in (ROOT / folder).iterdir() if path.is_dir() and any(path.rglob("*.py"))}

    assert folders - OTHER_FOLDERS == set(SUBPACKAGES[folder].split())


@pytest.mark.parametrize("library", [*LIBRARIES, ENTRY_POINTS])
def test_pure_libraries_import_neither_django_nor_celery(library):
    wrong = [
        f"{module} imports {imported}"
        for module, path in modules()
        for imported in imports_of(path)
        if layer_of(module) == library and imported.partition(".")[0] in FORBIDDEN_IN_LIBRARIES
    ]

    assert wrong == []


@pytest.mark.parametrize("library", [*LIBRARIES, ENTRY_POINTS])
def test_pure_libraries_import_no_other_package_of_the_project(library):
    wrong = [
        f"{module} imports {imported}"
        for module, path in modules()
        for imported in imports_of(path)
        if layer_of(module) == library and layer_of(imported) not in (None, library, ENTRY_POINTS)
    ]

    assert wrong == []


def test_importing_pure_libraries_loads_neither_django_nor_celery():
    modules = ["kgharvest.engine", "kgharvest.engine.types", "kgharvest.statistics.judge_assisted"]
    if find_spec("torch"):
        modules.append("kgharvest.engine.harvest")

    assert loaded_by(f"import {', '.join(modules)}", "django", "celery") == []


def test_importing_the_package_loads_nothing_else():
    assert loaded_by("import kgharvest", "django", "celery", "numpy", "torch", "evaluation") == []


def test_system_checks_load_no_heavy_libraries():
    """The system checks load all models and URLs. Most commands run them, and `web` imports the same modules."""
    run = "import django, io; from django.core.management import call_command as run; django.setup()"
    heavy = (
        *("torch", "transformers", "scipy.special", "scipy.sparse", "scipy.stats", "scipy.optimize", "pandas"),
        *("pyarrow", "matplotlib", "lemminflect", "httpx", "authlib", "joserfc", "cryptography.x509", "markdown_it"),
    )

    assert loaded_by(f"{run}; run('check', stdout=io.StringIO())", *heavy) == []


def test_worker_starts_without_reports():
    start = "import django; django.setup(); import kgharvest.jobs.tasks"

    assert loaded_by(start, "torch", "scipy.special", "evaluation.reports.document", "evaluation.evidence") == []
