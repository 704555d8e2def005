"""Names of hub models with a revision (`bert-base-cased@main`), and of GGUF files."""

import re
from pathlib import Path

from kgharvest.engine.types import HUB_ID

# Branch, tag or commit. Also used as a file name in the hub's cache.
REVISION = re.compile(r"(?!.*\.\.)\w[\w./-]*", re.ASCII)
WITH_REVISION = re.compile(rf"({HUB_ID.pattern})@(?P<revision>{REVISION.pattern})", re.ASCII)


def is_gguf(name: str | Path) -> bool:
    """Return whether `name` is an existing GGUF file. Raises OSError or RuntimeError for an unreadable path."""
    return str(name).endswith(".gguf") and Path(name).expanduser().is_file()


def split_revision(name: str, revision: str = "") -> tuple[str, str]:
    """Split a name such as `bert-base-cased@main` into name and revision. The inverse of str(LanguageModel)."""
    match = WITH_REVISION.fullmatch(name)
    return (name, revision) if revision or match is None else (match[1], match["revision"])
