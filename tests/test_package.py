"""The installed wheel, without the checkout and without optional packages, and a plugin in a package of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kgharvest import VERSION
from kgharvest.embedded_lm import EMBEDDED_LMS
from tests.made_once import made_once

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("annotation", "evaluation", "kgharvest")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = ["accelerate", "bitsandbytes", "boto3", "gunicorn", "psutil", "psycopg", "redis", "storages"]
STARTS_WITHIN_S = 120


def requirements(lines: list[str]) -> dict[str, Requirement]:
    pending = [Requirement(line.partition("#")[0]) for line in lines if line.strip() and line[0] not in "#-"]
    return {canonicalize_name(requirement.name): requirement for requirement in pending}


def files_in(folder: Path) -> set[str]:
    """Return the paths of all files in the folder except compiled modules."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in paths if "__pycache__" not in path.parts}


def run(command: list[str], **options) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def site(shared_folder) -> Path:
    """Folder with kgharvest, installed from the source distribution, and the plugin of tests/plugin."""
    return made_once(shared_folder / "site", install)


def install(folder: Path) -> None:
    sources = folder.with_name("distributions")
    run(["-m", "hatchling", "build", "--target", "sdist", "--directory", str(sources)], cwd=ROOT)
    shutil.copytree(ROOT / "tests" / "plugin", sources / "plugin")
    # Modules are compiled when first imported.
    pip = ["-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-compile"]
    run([*pip, "--target", str(folder), *map(str, sources.glob("*.tar.gz")), str(sources / "plugin")])


class Place:
    """An empty working directory and home, where only the installed packages can be imported."""

    def __init__(self, site: Path, folder: Path, hidden: list[str]):
        self.work, self.home = folder / "work", folder / "home"
        for new in (self.work, self.home, folder / "hidden"):
            new.mkdir()
        code = "".join(f"sys.modules[{name!r}] = None\n" for name in hidden)
        (folder / "hidden" / "sitecustomize.py").write_text(f"import sys\n{code}")
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "OMP_NUM_THREADS") if name in os.environ}
        self.environment = {**kept, "HOME": str(self.home), "PYTHONPATH": f"{folder / 'hidden'}{os.pathsep}{site}"}

    def run(self, *command: str, **variables: str) -> str:
        return run(list(command), cwd=self.work, env={**self.environment, **variables}).stdout


@pytest.fixture
def place(site, tmp_path) -> Iterator[Place]:
    """Place without the packages of the extras. Afterwards, nothing has changed in the installed packages."""
    before = files_in(site)
    yield Place(site, tmp_path, OPTIONAL)
    assert files_in(site) == before


# Metadata


def test_metadata_lists_the_pinned_packages_and_permits_their_versions():
    def permitted(*extras: str) -> dict[str, Requirement]:
        return requirements([line for extra in extras for line in PROJECT["optional-dependencies"][extra]])

    pinned = requirements(
        [line for name in ("", "-torch") for line in (ROOT / f"requirements{name}.txt").read_text().splitlines()]
    )
    pinned_large, pinned_smollm2 = (
        requirements((ROOT / f"requirements-{name}.txt").read_text().splitlines()) for name in ("large", "smollm2")
    )

    for pins, ranges in [
        (pinned, requirements(PROJECT["dependencies"]) | permitted("server", "s3")),
        (pinned_large, permitted("large")),
        (pinned_smollm2, permitted("smollm2")),
    ]:
        assert pins.keys() == ranges.keys()
        for name, pin in pins.items():
            [version] = [specifier.version for specifier in pin.specifier]
            assert ranges[name].specifier.contains(version), name
            assert ranges[name].extras == pin.extras, name


# Files


def test_wheel_contains_three_packages_with_their_files(site, tmp_path):
    run(["-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)], cwd=ROOT)
    [wheel] = tmp_path.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    expected = {f"{package}/{name}" for package in PACKAGES for name in files_in(ROOT / package)}
    expected |= {f"kgharvest/templates/{name}" for name in files_in(ROOT / "templates")}
    expected |= {f"kgharvest/{name}" for name in ("gunicorn.conf.py", "requirements.txt")}
    assert names == expected
    assert "kgharvest/py.typed" in names
    installed = {name for name in files_in(site) if name.split("/")[0] in PACKAGES}
    assert installed == names  # the source distribution builds the same wheel


# Running


def test_version_and_command_without_optional_packages(site, place):
    command = site / "bin" / "kgharvest"

    assert place.run(str(command), "--version") == f"kgharvest {VERSION}\n"
    assert "Usage: kgharvest COMMAND" in place.run(str(command), "help")


def test_settings_create_nothing_and_name_the_data_folder_of_the_user(place):
    code = "import django; django.setup(); from django.conf import settings; print(settings.DATA_DIR)"

    data_dir = place.run("-c", code, DJANGO_SETTINGS_MODULE="kgharvest.settings").strip()

    assert Path(data_dir).is_relative_to(place.home)
    assert Path(data_dir).name == "kgharvest"
    assert [*place.home.iterdir(), *place.work.iterdir()] == []


def test_static_files_of_production_are_collected_in_the_data_folder(place):
    production = {"SECRET_KEY": "x" * 50, "ALLOWED_HOSTS": "localhost"}

    place.run("-m", "kgharvest", "collectstatic", "--noinput", "--verbosity", "0", **production)

    [manifest] = place.home.rglob("staticfiles.json")
    assert "kgharvest/site.css" in json.loads(manifest.read_text())["paths"]


@pytest.mark.django_db
def test_web_serves_pages_with_waitress_alone(place, migrated_once, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "data").mkdir()
    shutil.copyfile(migrated_once.path, tmp_path / "data" / "kgharvest.sqlite3")
    environment = {**place.environment, "PORT": str(port), "KGHARVEST_DATA_DIR": str(tmp_path / "data")}
    with (tmp_path / "log").open("w+") as log:
        command = [sys.executable, "-m", "kgharvest", "web"]
        server = subprocess.Popen(command, cwd=place.work, env=environment, stdout=log, stderr=log)
        try:
            page = opened(f"http://127.0.0.1:{port}/accounts/login/", server)
            server.send_signal(signal.SIGTERM)
            assert server.wait(STARTS_WITHIN_S) == 0
        finally:
            server.kill()
        log.seek(0)
        output = log.read()

    assert '<link rel="stylesheet" href="/static/kgharvest/site.css' in page
    assert f"http://127.0.0.1:{port}/member/" in output  # the link for the first owner


def opened(url: str, server: subprocess.Popen) -> str:
    """Return the page as soon as the server answers."""
    deadline = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=STARTS_WITHIN_S) as response:
                return response.read().decode()
        except OSError:
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)


# Plugin


@pytest.mark.django_db
def test_plugin_adds_an_lm_family_a_setting_and_an_export(place, migrated_once, tmp_path):
    pytest.importorskip("torch")
    data, lm = tmp_path / "data", tmp_path / "acme-lm"
    data.mkdir()
    shutil.copyfile(migrated_once.path, data / "kgharvest.sqlite3")
    shutil.copytree(EMBEDDED_LMS["embedded-small"], lm)
    config = json.loads((lm / "config.json").read_text())
    (lm / "config.json").write_text(json.dumps({**config, "acme_first_letter": "p"}))
    relations = {
        "name": "capitals",
        "relations": [
            {
                "name": "capital",
                "initial_prompts": ["<ENT0> is the capital of <ENT1>."],
                "seed_tuples": [["paris", "poland"], ["prague", "portugal"]],
            }
        ],
    }
    (tmp_path / "capitals.json").write_text(json.dumps(relations))
    script = f"""
import sys
from django.core.management import call_command
from kgharvest.models import HarvestJob
call_command("import_relations", {str(tmp_path / "capitals.json")!r}, stdout=sys.stderr)
call_command("harvest", relation=["capital"], model=[{str(lm)!r}], setting=["acme"], max_tuples=5, candidates=20,
             max_entity_tokens=1, wait=True, stdout=sys.stderr)
[job] = HarvestJob.objects.all()
print(*[used.prompt for used in job.job_prompts.all()])
call_command("export_tuples", job=str(job.pk), file_format="tsv")
"""

    lines = place.run("-m", "kgharvest", "shell", "-v", "0", "-c", script, KGHARVEST_DATA_DIR=str(data)).splitlines()

    assert lines[0] == "indeed , <ENT0> is the capital of <ENT1>."
    header, *rows = [line.split("\t") for line in lines[1:]]
    tuples = [dict(zip(header, row, strict=True)) for row in rows]
    assert {row["setting"] for row in tuples} == {"acme"}
    entities = [entity for row in tuples for entity in json.loads(row["entities"].replace("'", '"'))]
    assert len(entities) == 2 * len(tuples) > 0
    assert {entity[0] for entity in entities} == {"p"}
