"""Expensive files, created once for all processes of a test run."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path


def made_once(path: Path, make: Callable[[Path], object]) -> Path:
    """Return `path`, a file or folder that `make` creates in the first process that needs it; other processes wait.

    path: inside the fixture `shared_folder`.
    """
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            new = path.with_name(f"{path.name}.new")
            make(new)
            new.rename(path)
    return path
