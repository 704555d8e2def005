"""kgharvest: harvest knowledge from language models. Every result stores the version that produced it."""

import os
import subprocess
from functools import cache
from pathlib import Path

VERSION = "0.1.0"


@cache
def code_version() -> str:
    """Return the version, with the commit if available: "0.1.0+1a2b3c4d".

    The commit comes from KGHARVEST_COMMIT (set in images by deploy/Dockerfile) or from git.
    """
    if commit := os.environ.get("KGHARVEST_COMMIT", "")[:8]:
        return f"{VERSION}+{commit}"
    if not (Path(__file__).parents[1] / ".git").exists():  # a parent folder may be another repository
        return VERSION
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return VERSION
    return f"{VERSION}+{commit}"
