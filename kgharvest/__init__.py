"""kgharvest: harvest knowledge from language models. Which version runs is stored with every result."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

VERSION = "0.1.0"


@cache
def code_version() -> str:
    """Return the version, with the commit where it is known: "0.1.0+1a2b3c4d".

    A checkout knows it; an image is told by KGHARVEST_COMMIT (deploy/Dockerfile).
    """
    if commit := os.environ.get("KGHARVEST_COMMIT", "")[:8]:
        return f"{VERSION}+{commit}"
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return VERSION
    return f"{VERSION}+{commit}"
