"""kgharvest: harvest knowledge from language models. Every result stores the version that produced it.

    import kgharvest as kg
    lm = kg.load_lm("embedded")
    capitals = kg.harvest("<ENT0> is the capital of <ENT1> .", [("paris", "france"), ("rome", "italy")], lm)
    kg.accuracy("labels.csv")

Public names are imported on first use, so that importing the package stays fast and never loads Django.
"""

import os
import subprocess
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluation.labels import accuracy, agreement, compare
    from kgharvest.python_api import harvest, load_lm

VERSION = "0.1.0"

# Public names by module
LAZY = {
    "accuracy": "evaluation.labels",
    "agreement": "evaluation.labels",
    "compare": "evaluation.labels",
    "harvest": "kgharvest.python_api",
    "load_lm": "kgharvest.python_api",
}
__all__ = ["VERSION", "accuracy", "agreement", "code_version", "compare", "harvest", "load_lm"]


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = resolve_name(f"{LAZY[name]}:{name}")
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})


@cache
def code_version() -> str:
    """Return the version, with the commit if available: "0.1.0+1a2b3c4d".

    The commit comes from KGHARVEST_COMMIT (set in images by deploy/Dockerfile) or from git.
    """
    if commit := os.environ.get("KGHARVEST_COMMIT", "")[:8]:
        return f"{VERSION}+{commit}"
    if not (Path(__file__).parents[1] / ".git").exists():  # a repository in a parent folder is unrelated
        return VERSION
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return VERSION
    return f"{VERSION}+{commit}"
