"""Labels for tests: statements of five annotators in strata and clusters, and the public DBpedia study."""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write_csv(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, records[0].keys())
        writer.writeheader()
        writer.writerows(records)
    return path


def labels(items: dict[str, str], annotators: str = "abcde", **fields: Any) -> list[dict[str, Any]]:
    """Return records of items with a letter per annotator: "ttf" are the labels of a, b, and c; "." is none."""
    return [
        {"item": item, "annotator": annotator, "label": letter, **fields}
        for item, letters in items.items()
        for annotator, letter in zip(annotators, letters, strict=False)
        if letter != "."
    ]


def crowd(n_items: int = 60, sides: Sequence[tuple[str, str]] = (("lm", "human"), ("lm", "multi"))) -> list[dict]:
    """Return labels of three annotators on the tuples of two relations by each side."""
    rng = random.Random(4)
    return [
        {
            "relation": relation, "entities": f'["{relation} {side[1]} {number}", "x"]', "annotator": annotator,
            "label": "True" if rng.random() < (0.8 if side[1] == "multi" else 0.6) else rng.choice(["False", "U"]),
            "model": side[0], "setting": side[1],
        }
        for relation in ("helps", "prevents")
        for side in sides
        for number in range(n_items // 4)
        for annotator in "xyz"
    ]  # fmt: skip


def dbpedia_records(public_data: Path) -> list[dict[str, str]]:
    """Return the judgments of the DBpedia study in the columns of label files: facts as items, subjects as clusters."""
    folder = public_data / "dbpedia_study"
    weights = next(csv.DictReader((folder / "stratum_weights.csv").read_text().splitlines()))
    with gzip.open(folder / "laymen.csv.gz", "rt", encoding="utf-8") as file:
        return [
            {
                "item": f"{row['subject']} {row['predicate']} {row['object']}",
                "annotator": row["annotator"],
                "label": row["label"],
                "stratum": row["stratum"],
                "weight": weights[f"stratum{int(row['stratum']) + 1}"],
                "cluster": row["subject"],
            }
            for row in csv.DictReader(file)
        ]
