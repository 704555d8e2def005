"""Files of heads: the entities of the first slot that a harvest completes."""

import csv
from pathlib import Path

from kgharvest.bulk.file_reading import read_text
from kgharvest.engine.filters import is_writable
from kgharvest.errors import BadEntry, ImportRefused

MOST_HEADS = 10_000
DELIMITERS = {".csv": ",", ".tsv": "\t"}  # of the columns, by the suffix of the file; other files have one column


def read_heads(path: Path) -> tuple[str, ...]:
    """Return the distinct heads of a text file, one per line, or of the first column of a CSV or TSV file.

    Raises NoSuchFile or ImportRefused.
    """
    lines = read_text(path).splitlines()
    delimiter = DELIMITERS.get(path.suffix.lower())
    rows = csv.reader(lines, delimiter=delimiter) if delimiter else ([line] for line in lines)
    heads = dict.fromkeys(" ".join(row[0].split()) for row in rows if row and row[0].strip())
    errors = [BadEntry(f"head {head!r:.60}", "is too long or not printable") for head in heads if not is_writable(head)]
    if not 1 <= len(heads) <= MOST_HEADS:
        errors.append(BadEntry("file", f"has {len(heads):,} heads, not 1 to {MOST_HEADS:,}; write one per line"))
    if errors:
        raise ImportRefused(path.name, errors)
    return tuple(heads)
