"""Evidence from a label file, without a database.

Converts CSV files or records to the rows of evaluation.evidence.tables.

docs/label-files.md describes the columns.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from annotation.exchange.judgment_files import DUPLICATES, MOST_ROWS, ImportedRow, read_judgments, read_records
from evaluation.evidence.tables import COUNTED, EMPTY, Rows, report_order
from kgharvest.bulk.file_reading import read_lines
from kgharvest.errors import BadEntry, DomainError, Faults, ImportRefused
from kgharvest.statistics.arrays import LABELS
from kgharvest.statistics.paired_tests import CellKey
from kgharvest.statistics.verdicts import IMPORTED_QUORUM, majority

if TYPE_CHECKING:
    import pandas as pd

REQUIRED = ("annotator", "label")
REQUIRED_OF_JUDGES = ("label",)
TOLERANCE = 0.005  # tolerance for the sum of the weights of a cell's strata

# A path to a CSV file, a pandas DataFrame, or a list of mappings of column names to values
Labels: TypeAlias = "str | Path | pd.DataFrame | Sequence[Mapping[str, Any]]"
Statement = tuple[str, tuple[str, ...]]  # relation, and case-folded entities or the item
StratumName = tuple[CellKey, str]


class LabelRows(NamedTuple):
    """Labels with the name of their source and the word for its rows in errors: "line" or "row"."""

    name: str
    unit: str
    rows: Sequence[ImportedRow]


def read_labels(labels: Labels, required: Sequence[str] = REQUIRED) -> LabelRows:
    """Return the rows of a CSV file, a DataFrame, or mappings. Raises NoSuchFile, or ImportRefused with all faults."""
    entries: Iterator[ImportedRow | BadEntry]
    if isinstance(labels, str | Path):
        path = Path(labels)
        name, unit, entries = path.name, "line", read_judgments(read_lines(path), required)
    else:
        frame: Any = labels
        is_frame = hasattr(frame, "to_dict")
        records = frame.astype(object).where(frame.notna(), None).to_dict("records") if is_frame else frame
        name, unit, entries = "labels", "row", read_records(records, required)
    rows: list[ImportedRow] = []
    faults = Faults()
    for entry in entries:
        if isinstance(entry, BadEntry):
            faults.add(entry)
        elif len(rows) == MOST_ROWS:
            faults.add(BadEntry(f"{unit} {entry.line}", f"exceeds the limit of {MOST_ROWS:,} rows; split the file"))
            break
        else:
            rows.append(entry)
    faults.refuse(name)
    if not rows:
        raise ImportRefused(name, [BadEntry("file" if unit == "line" else "the labels", "has no judgments")])
    return LabelRows(name, unit, rows)


def rules_of_labels(name: str) -> dict[str, Any]:
    """Return the rules of `evaluation.evidence.rows.rules_of_round` for imported judgments."""
    return {
        "round": name,
        "source": "imported",
        "seed": 0,
        "judgments_per_task": None,
        "quorum": IMPORTED_QUORUM,
        "has_thirds": False,
        "demonstrators": [],
        "least_k": 0,
    }


def rows_of_labels(labels: LabelRows, duplicates: str = "error", judge: LabelRows | None = None) -> Rows:
    """Return the rows of a report.

    duplicates: policy for repeated judgments of one annotator on one statement: "error", or keep the "first" or "last".
    If an annotator gave the same label to a statement in two cells, this is one judgment that counts for both cells.
    judge: labels of an LM judge. Raises ImportRefused with all faults, or DomainError BadDuplicates.
    """
    if duplicates not in DUPLICATES:
        raise DomainError("BadDuplicates", f"duplicates is {duplicates!r:.40}. Use {', '.join(DUPLICATES)}.")
    faults = Faults()
    number: dict[Statement, int] = {}
    statements = [number.setdefault(_statement(row), len(number)) for row in labels.rows]
    accepted = _without_duplicates(labels, statements, duplicates, faults)
    strata, draws = _strata(labels, statements, faults)
    cluster = _clusters(labels, statements, len(number), faults)
    faults.refuse(labels.name)
    names = sorted({row.annotator for row in labels.rows})
    annotators = {name: position for position, name in enumerate(names)}
    label_codes = {label: code for code, label in enumerate(LABELS)}
    judgments = [
        (task + 1, annotators[annotator], label_codes[row.label], nan if row.seconds is None else row.seconds)
        for (annotator, task), row in accepted.items()
    ]
    task, annotator, label, seconds = (np.array(column) for column in zip(*judgments, strict=True))
    place = (task - 1) * len(LABELS) + label
    counts = np.bincount(place, minlength=len(number) * len(LABELS)).reshape(-1, len(LABELS))
    n = len(number)  # statements that people judged
    rows: dict[str, dict[str, Any]] = {
        "statements": {
            "statement": np.arange(1, n + 1),
            "tuple": np.arange(1, n + 1),
            "is_gold": np.zeros(n, dtype=np.bool_),
            "gold_label": np.full(n, EMPTY),
            "n_wanted": counts.sum(axis=1),
            "verdict": majority(counts, IMPORTED_QUORUM),
            "adjudication": np.full(n, EMPTY),
        },
        "judgments": {
            "statement": task,
            "annotator": annotator,
            "label": label,
            "seconds": seconds.astype(np.float64),
            "status": np.full(len(task), COUNTED),
        },
        "annotators": {"annotator": names, "status": ["active"] * len(names)},
        "strata": strata,
        "draws": draws,
        "clusters": {} if cluster is None else {"cluster": cluster[draws["statement"] - 1]},
        "harvests": {name: [] for name in ("harvest", "model", "setting", "last_rank", "kept_by_base")},
        "harvested": {},
        "judge_runs": {},
        "judge_answers": {},
    }
    if judge:
        _add_judge(rows, judge, number)
    return rows


def _statement(row: ImportedRow) -> Statement:
    is_item = len(row.entities) == 1
    return row.relation, row.entities if is_item else tuple(entity.casefold() for entity in row.entities)


def _without_duplicates(
    labels: LabelRows, statements: Sequence[int], duplicates: str, faults: Faults
) -> dict[tuple[str, int], ImportedRow]:
    """Return the row of each judgment by annotator and statement."""
    accepted: dict[tuple[str, int], ImportedRow] = {}
    for row, task in zip(labels.rows, statements, strict=True):
        earlier = accepted.setdefault((row.annotator, task), row)
        if earlier is row:
            continue
        if earlier.label == row.label and (earlier.model, earlier.setting) != (row.model, row.setting):
            continue  # one judgment that counts for several cells
        if duplicates == "error":
            reason = (
                f"{row.annotator!r:.60} already judged {' · '.join(row.entities):.100} in {labels.unit} "
                f"{earlier.line}; remove a row, or set duplicates to first or last"
            )
            faults.add(BadEntry(f"{labels.unit} {row.line}, annotator", reason))
        elif duplicates == "last":
            accepted[row.annotator, task] = row
    return accepted


# Strata and clusters


def _strata(labels: LabelRows, statements: Sequence[int], faults: Faults) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the strata in report order, and the draws. Statements of named cells do not count for the unnamed cell."""
    stratum_of: dict[tuple[CellKey, int], ImportedRow] = {}
    weights: dict[StratumName, ImportedRow] = {}
    if lacks_weights := all(row.weight is None for row in labels.rows) and any(row.stratum for row in labels.rows):
        reason = "is missing; add the share of each stratum in the population, or remove the column stratum"
        faults.add(BadEntry("column weight", reason))
    in_named_cell = {task for row, task in zip(labels.rows, statements, strict=True) if row.model or row.setting}
    for row, task in zip(labels.rows, statements, strict=True):
        if task in in_named_cell and not (row.model or row.setting):
            continue
        cell = _cell(row)
        where = f"{labels.unit} {row.line}"
        if not lacks_weights and bool(row.stratum) != (row.weight is not None):
            missing = "weight" if row.stratum else "stratum"
            faults.add(BadEntry(f"{where}, {missing}", "is empty; fill in both stratum and weight, or neither"))
            continue
        first = stratum_of.setdefault((cell, task), row)
        if first.stratum != row.stratum:
            place = f"in {labels.unit} {first.line} for this statement"
            reason = f"is {row.stratum!r:.60}, but {first.stratum!r:.60} {place}"
            faults.add(BadEntry(f"{where}, stratum", reason))
        same = weights.setdefault((cell, row.stratum), row)
        if same.weight != row.weight:
            reason = f"is {row.weight}, but {same.weight} in {labels.unit} {same.line} for this stratum"
            faults.add(BadEntry(f"{where}, weight", reason))
    names = sorted(weights, key=lambda name: (report_order(name[0]), name[1]))
    for cell in dict.fromkeys(cell for cell, _ in names):
        of_cell = {stratum: row.weight for (key, stratum), row in weights.items() if key == cell}
        values = [weight for weight in of_cell.values() if weight is not None]
        of = f" of {name}" if (name := " · ".join(part for part in cell if part)) else ""
        if values and len(values) < len(of_cell):
            faults.add(BadEntry("stratum", f"is empty in some rows{of}; name the stratum of every statement"))
        elif values and abs(sum(values) - 1) > TOLERANCE:
            reason = f"add up to {sum(values):.4g} over the strata{of} instead of 1; give shares of the population"
            faults.add(BadEntry("weights", reason))
    number = {name: position for position, name in enumerate(names, start=1)}
    cells = [cell for cell, _ in names]
    unknown = ("harvest", "rank_from", "rank_to", "population", "judge_label", "ranks")
    strata: dict[str, Any] = {name: [None] * len(names) for name in unknown}
    strata["weight"] = [weights[name].weight for name in names]
    strata |= {name: [getattr(cell, name) for cell in cells] for name in CellKey._fields}
    drawn = [(number[cell, row.stratum], task + 1) for (cell, task), row in stratum_of.items()]
    draws = {
        "stratum": np.array([stratum for stratum, _ in drawn], dtype=np.int64),
        "statement": np.array([statement for _, statement in drawn], dtype=np.int64),
        "rank": np.zeros(len(drawn), dtype=np.int64),
        "score": np.full(len(drawn), nan),
    }
    return strata, draws


def _cell(row: ImportedRow) -> CellKey:
    return CellKey(row.relation or None, row.model or None, row.setting or None)  # type: ignore[arg-type]  # no relation


def _clusters(
    labels: LabelRows, statements: Sequence[int], n_statements: int, faults: Faults
) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """Return the cluster of each statement (T,), or None. A statement without a cluster is a cluster by itself."""
    first: dict[int, ImportedRow] = {}
    number: dict[str, int] = {}
    for row, task in zip(labels.rows, statements, strict=True):
        same = first.setdefault(task, row)
        if same.cluster != row.cluster:
            reason = f"is {row.cluster!r:.60}, but {same.cluster!r:.60} in {labels.unit} {same.line} for this statement"
            faults.add(BadEntry(f"{labels.unit} {row.line}, cluster", reason))
        if row.cluster:
            number.setdefault(row.cluster, len(number))
    if not number:
        return None
    return np.array([
        number[first[task].cluster] if first[task].cluster else len(number) + task for task in range(n_statements)
    ])  # fmt: skip


# Judge labels


def _add_judge(rows: dict[str, dict[str, Any]], judge: LabelRows, number: dict[Statement, int]) -> None:
    """Add the labels of an LM judge, and the statements that only the judge labeled, to the rows.

    If people judged only some of a cell's statements with a judge label, these statements are the cell's population. A
    cell with strata keeps its weights. `number` contains the numbers of the judged statements; the remaining statements
    are numbered after them. Raises ImportRefused.
    """
    faults = Faults()
    first: dict[Statement, ImportedRow] = {}
    for row in judge.rows:
        same = first.setdefault(_statement(row), row)
        if same.label != row.label:
            reason = f"is {row.label}, but {same.label} in {judge.unit} {same.line} for the same statement"
            faults.add(BadEntry(f"{judge.unit} {row.line}, label", reason))
    judged = set(number)
    for statement in first:
        number.setdefault(statement, len(number))
    if judged.isdisjoint(first):
        faults.add(BadEntry("file", "labels no statement that people judged; use the same items or entities"))
    faults.refuse(judge.name)
    name = Path(judge.name).stem
    rows["judge_runs"] = {
        "run": [1],
        "kind": ["file"],
        "name": [name],
        "model": [name],
        "prompt_sha256": [""],
        "repeats": [1],
        "differs": ["[]"],
        **{column: [None] for column in ("revision", "prompt", "temperature", "seed", "threshold", "panel")},
    }
    rows["judge_answers"] = {
        "run": np.ones(len(first), dtype=np.int64),
        "tuple": np.array([number[statement] + 1 for statement in first]),
        "label": np.array([LABELS.index(row.label) for row in first.values()]),
        "score": np.full(len(first), nan),
    }
    _add_populations(rows, judge, number)


def _add_populations(rows: dict[str, dict[str, Any]], judge: LabelRows, number: Mapping[Statement, int]) -> None:
    """Use the statements of each cell as its population if the judge labeled more statements than people judged.

    Judge labels without LM and setting belong to the only cell of their relation. Ranks only number the statements.
    Either all cells get a population or none does.
    """
    strata, draws = rows["strata"], rows["draws"]
    labeled: defaultdict[CellKey, dict[int, None]] = defaultdict(dict)  # statements in the order of the file
    for row in judge.rows:
        labeled[_cell(row)][number[_statement(row)]] = None
    cells = list(map(CellKey, *(strata[name] for name in CellKey._fields)))
    n_cells = Counter(cell.relation for cell in cells)
    populations = []
    for position, cell in enumerate(cells):
        drawn = (draws["statement"][draws["stratum"] == position + 1] - 1).tolist()
        without_side = labeled[CellKey(cell.relation, None, None)] if n_cells[cell.relation] == 1 else {}
        members = list(dict.fromkeys([*labeled[cell], *without_side, *drawn]))
        if strata["weight"][position] is not None or len(members) == len(drawn):
            return
        populations.append(members)
    sizes = list(map(len, populations))
    strata |= {"harvest": list(range(1, len(cells) + 1)), "rank_from": [1] * len(cells), "rank_to": sizes}
    strata["population"] = sizes
    ranks = [{statement: rank for rank, statement in enumerate(members, start=1)} for members in populations]
    places = zip(draws["stratum"].tolist(), draws["statement"].tolist(), strict=True)
    draws["rank"] = np.array([ranks[stratum - 1][statement - 1] for stratum, statement in places])
    draws["score"] = np.zeros(len(draws["rank"]))
    rows["harvested"] = {
        "harvest": np.repeat(np.arange(1, len(cells) + 1), sizes),
        "rank": np.concatenate([np.arange(1, size + 1) for size in sizes]),
        "tuple": np.concatenate([np.array(members) + 1 for members in populations]),
        "score": np.zeros(sum(sizes)),
        "left_out": np.full(sum(sizes), EMPTY),
    }
