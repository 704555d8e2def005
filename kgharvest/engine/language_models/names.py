"""Names of hub models with a revision: `bert-base-cased@main`."""

import re

from kgharvest.engine.types import HUB_ID

# Branch, tag or commit. Also used as a file name in the hub's cache.
REVISION = re.compile(r"(?!.*\.\.)\w[\w./-]*", re.ASCII)
WITH_REVISION = re.compile(rf"({HUB_ID.pattern})@(?P<revision>{REVISION.pattern})", re.ASCII)


def split_revision(name: str, revision: str = "") -> tuple[str, str]:
    """Split a name such as `bert-base-cased@main` into name and revision. The inverse of str(LanguageModel)."""
    match = WITH_REVISION.fullmatch(name)
    return (name, revision) if revision or match is None else (match[1], match["revision"])
