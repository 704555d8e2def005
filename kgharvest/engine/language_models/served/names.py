"""Names of served LMs: `http://host:8000/v1#MODEL`, or `#MODEL@TOKENIZER` if the two names differ."""

import re
from typing import NamedTuple

SERVER = re.compile(r"(?P<base_url>https?://[^#\s]+)#(?P<model>[^@\s]+)(@(?P<tokenizer>\S+))?")


class ServedName(NamedTuple):
    """base_url: URL without `/completions`. tokenizer: hub id or local folder."""

    base_url: str
    model: str
    tokenizer: str

    def __str__(self) -> str:
        tokenizer = "" if self.tokenizer == self.model else f"@{self.tokenizer}"
        return f"{self.base_url}#{self.model}{tokenizer}"


def served_name(name: str) -> ServedName | None:
    """Parse `name`. Returns None unless it names a served LM."""
    match = SERVER.fullmatch(name)
    if match is None:
        return None
    return ServedName(match["base_url"].rstrip("/"), match["model"], match["tokenizer"] or match["model"])
