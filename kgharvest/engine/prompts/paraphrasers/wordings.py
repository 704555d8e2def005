"""Wordings of common relations: groups of them in text files, each wording a rule for all others of its group.

relation_wordings.txt says how its lines are written; linguists can add to it without reading code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kgharvest.engine.prompts.paraphrasers.rewriting import Rewrite
from kgharvest.engine.prompts.paraphrasers.synonyms import with_heads

FOLDER = Path(__file__).parent
FILES = ("relation_wordings.txt", "fact_wordings.txt")
ONLY_SAID, ONLY_RECOGNISED = "> ", "< "
PEOPLE = (
    r"(?:(?:(?:many|most|some) )?(?:people|tourists|visitors|patients|customers|workers|families|speakers)|"
    r"you|we|they|i|I|one|everybody|everyone)"
)


def wordings_of(text: str) -> Iterator[list[str]]:
    """Yield the groups of a file of wordings, comments left out."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    yield from (group.splitlines() for group in re.split(r"\n{2,}", lines.strip("\n")) if group)


def rewrites_of(group: list[str]) -> Iterator[Rewrite]:
    """Yield a rule for each wording of `group` that is recognised."""
    marks = ONLY_SAID + ONLY_RECOGNISED
    said = [line.removeprefix(ONLY_SAID) for line in group if not line.startswith(ONLY_RECOGNISED)]
    for line in group:
        if not line.startswith(ONLY_SAID):
            wording = line.lstrip(marks)
            yield Rewrite(line, pattern_of(wording), tuple(other for other in said if other != wording))


def pattern_of(wording: str) -> str:
    with_slots = re.sub(r"\{([ABC])(?::bare)?\}", lambda part: f"<ENT{'ABC'.index(part[1])}>", wording)
    pattern = re.sub(r"<ENT(\d)>", lambda slot: f"{{{'ABC'[int(slot[1])]}}}", with_heads(with_slots))
    pattern = re.sub(r",? (?=\{)", lambda gap: ",? " if "," in gap[0] else " ", pattern)
    return re.sub(r"\bpeople\b", lambda _: PEOPLE, pattern)


RELATION_REWRITES = tuple(
    rewrite
    for name in FILES
    for group in wordings_of((FOLDER / name).read_text(encoding="utf-8"))
    for rewrite in rewrites_of(group)
)
