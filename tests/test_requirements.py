"""Lock files: all requirements, with hashes, and without package sources."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"^([\w.-]+)(?:\[\w+\])?==([\w.]+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / name).read_text()))


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-test.lock"])
def test_lock_pins_the_required_versions(lock):
    required = pins("requirements.txt") | (pins("requirements-test.txt") if "test" in lock else {})

    assert pins(lock).items() >= required.items()


def test_test_lock_pins_the_shipped_versions():
    assert pins("requirements-test.lock").items() >= pins("requirements.lock").items()


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-test.lock"])
def test_every_package_of_a_lock_has_hashes(lock):
    requirements = (ROOT / lock).read_text().replace("\\\n", " ").splitlines()
    packages = [line for line in requirements if PIN.match(line)]

    assert len(packages) > 50
    assert all("--hash=sha256:" in package for package in packages)


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-test.lock"])
def test_a_lock_names_neither_torch_nor_an_index(lock):
    text = (ROOT / lock).read_text()

    assert "torch" not in pins(lock)
    assert not re.search(r"index-url|find-links|https?://|file:", text)
