"""Common words, which are no names: those of the tables that paraphrases are made with, and the filters' stop words."""

from __future__ import annotations

import re
from pathlib import Path

from kgharvest.engine.filters import STOP_WORDS
from kgharvest.engine.prompts.paraphrasers.inflection import IRREGULAR
from kgharvest.engine.prompts.paraphrasers.synonyms import entries

_WORDINGS = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*_wordings.txt"))
# First words of prompts that no table has.
_OTHERS = (
    "tourists visitors patients customers workers families speakers everybody everyone somebody someone "
    "usually typically normally sometimes always"
)

COMMON_WORDS = (
    STOP_WORDS
    | set(re.findall(r"\b[a-z]+\b", _WORDINGS))
    | set(_OTHERS.split())
    | set(IRREGULAR)
    | {word for _, entry in entries() for phrase in entry.words for word in phrase.split()}
)
