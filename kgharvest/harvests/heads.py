"""Files of heads: the entities of the first slot that a harvest completes."""

import csv
from io import StringIO
from pathlib import Path

from kgharvest.bulk.file_reading import read_text
from kgharvest.engine.filters import is_writable
from kgharvest.errors import BadEntry, ImportRefused

MOST_HEADS = 10_000
DELIMITERS = {".csv": ",", ".tsv": "\t"}  # of the columns, by the suffix of the file; other files have one column


def read_heads(path: Path) -> tuple[str, ...]:
    """Return the distinct heads of a text file, one per line, or of the first column of a CSV or TSV file.

    The first row of a CSV or TSV file is a head, as headers cannot be detected. Raises NoSuchFile or ImportRefused.
    """
    text, delimiter = read_text(path), DELIMITERS.get(path.suffix.lower())
    rows = csv.reader(StringIO(text, newline=""), delimiter=delimiter or ",")
    try:
        fields = [row[0] for row in rows if row] if delimiter else text.splitlines()
    except csv.Error as error:
        reason = f"is not a row of a table ({error}); check the quotation marks"
        raise ImportRefused(path.name, [BadEntry(f"line {rows.line_num}", reason)]) from None
    heads = dict.fromkeys(" ".join(field.split()) for field in fields if field.strip())
    errors = [BadEntry(f"head {head!r:.60}", "is too long or not printable") for head in heads if not is_writable(head)]
    if not 1 <= len(heads) <= MOST_HEADS:
        errors.append(BadEntry("file", f"has {len(heads):,} heads, not 1 to {MOST_HEADS:,}; write one per line"))
    if errors:
        raise ImportRefused(path.name, errors)
    return tuple(heads)
