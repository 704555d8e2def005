"""Raw data of a package: rows as JSONL and Parquet files, facts about the round, audit log, and recomputed report.

Annotators appear under the round's pseudonyms. Files contain no comments, names, invites, database ids, panel ids, or
texts of hidden tuples. docs/paper-pack.md describes each table and the excluded data.
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite, log
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from annotation.judging.verdicts import task_verdict
from annotation.models import Round
from evaluation.evidence.evidence import BASES
from evaluation.evidence.rows import FLOAT, LOGARITHMS, WHOLE, coded, conduct_facts, rules_of_round
from evaluation.evidence.tables import COUNTED, HIDDEN, SENSITIVE, TABLES, Columns, RowColumn, Rows, RowTable, n_rows
from evaluation.reports.document import document_of_rows
from evaluation.reports.report_sections import sections_of
from kgharvest.audit.tables import canonical_json, sha256
from kgharvest.bulk.file_reading import parse_json
from kgharvest.contrib.publishing.datasheets.facts import Facts, Scrub
from kgharvest.contrib.publishing.packs.archive import BadPack, PackFile
from kgharvest.environment import PROGRAM
from kgharvest.errors import DomainError
from kgharvest.events.chain import hashed_text
from kgharvest.events.models import Event
from kgharvest.statistics.arrays import LABELS, VERDICTS
from kgharvest.tables.formats import to_json

LARGEST_NUMBER = 2**63 - 1  # maximum of integer columns in Parquet
ROWS_AT_ONCE = 20_000
SMALL = 1_000_000  # number of bytes to which any Parquet file may decompress
FACTS, PREREGISTRATION = "rows/round.json", "preregistration.json"
# Parts of the object `conduct` of the report that are copied to the package. The other parts are recomputed from rows.
REPEATED = ("design", "limits", "training", "exclusions", "imports", "timeline", "answers", "noise_warnings")
REPEATED_OF = {
    "dates": ("created_at", "opened_at", "closed_at"),
    "people": ("n_invited",),
    "gold": ("n_confirmed_by", "confirmed_from", "confirmed_to"),
    "judgments": ("n_skipped", "n_reports"),
    "adjudications": ("n_superseded", "n_blind", "n_experts"),
}
REPEATED_PATHS = (  # paths in the document. Novelty is included, because the reference KG is not in the package
    "novelty",
    "preregistration.deviations",
    *(f"conduct.{name}" for name in REPEATED),
    *(f"conduct.{part}.{name}" for part, names in REPEATED_OF.items() for name in names),
)


def round_facts(round: Round, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules, dates, and log of the round, which the report repeats.

    document: document of the frozen report.
    """
    facts = conduct_facts(round)
    conduct = {name: facts[name] for name in REPEATED if name in facts}  # few rounds have answers
    parts = {part: {name: facts[part][name] for name in names} for part, names in REPEATED_OF.items()}
    return {
        **rules_of_round(round),
        "equivalence_margin": document["equivalence_margin"],
        "conduct": conduct | parts,
        **{section.key: section.packed_facts(round, document[section.key]) for section in sections_of(document)},
    }


def preregistration_files(facts: Mapping[str, Any]) -> list[PackFile]:
    """Return the file of the round's preregistration. The hash of this file was published.

    Without a preregistration, return no file.
    """
    if not (registered := facts.get("preregistration")):
        return []
    about = "The preregistration. Its SHA-256 is the hash of this file."
    return [PackFile(PREREGISTRATION, canonical_json(registered["document"]).encode(), "application/json", about)]


# Values


class _Type(NamedTuple):
    """Type of a column. is_valid: function that checks whether a JSON value other than None is valid."""

    arrow: pa.DataType
    is_valid: Callable[[Any], bool]


TYPES = {
    "string": _Type(pa.string(), lambda value: isinstance(value, str)),
    "integer": _Type(pa.int64(), lambda value: type(value) is int and abs(value) <= LARGEST_NUMBER),
    "number": _Type(pa.float64(), lambda value: type(value) in (int, float) and isfinite(value)),
    "boolean": _Type(pa.bool_(), lambda value: isinstance(value, bool)),
    "datetime": _Type(pa.timestamp("us", "UTC"), lambda value: isinstance(value, str)),
}


# Writing


def values_of_files(rows: Rows) -> dict[str, Columns]:
    """Return the values of each table in the form in which files contain them. Empty values are None.

    Harvests and tuples are numbered in order of appearance; annotators appear under their pseudonyms.
    """
    with_tuples = (rows[name] for name in ("statements", "harvested", "judge_answers"))
    tuples = np.concatenate([columns["tuple"] for columns in with_tuples if columns])
    ids, first = np.unique(tuples, return_index=True)
    in_order = ids[np.argsort(first)].tolist()
    names_of = {
        "tuple": {pk: number for number, pk in enumerate(in_order, start=1)},
        "harvest": {pk: number for number, pk in enumerate(rows["harvests"]["harvest"], start=1)},
        "annotator": dict(enumerate(rows["annotators"]["annotator"])),
    }
    names_in = {"annotators": {}}  # already pseudonyms, which are written unchanged
    return {
        table.name: {
            column.name: _values(
                column, rows[table.name].get(column.name, ()), names_in.get(table.name, names_of).get(column.name)
            )
            for column in table.columns
        }
        for table in TABLES
    }


def _values(column: RowColumn, values: Sequence[Any], names: Mapping[Any, Any] | None) -> list[Any]:
    values = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if names is not None:
        return [names.get(value) for value in values]
    if column.values:
        words = (*column.values, None)
        return [words[code] for code in values]
    if column.type == "number":
        return [None if value != value else value for value in values]
    return [value or None for value in values] if column.name == "rank" else values


def row_files(rows: Rows) -> Iterator[PackFile]:
    """Yield the JSONL and Parquet files of each table that has rows."""
    for table in TABLES:
        columns = rows[table.name]
        if n_rows(columns):
            for path, media_type, write in (
                (table.jsonl, "application/jsonl", _jsonl),
                (table.parquet, "application/vnd.apache.parquet", _parquet),
            ):
                yield PackFile(path, write(table, columns), media_type, table.description, table.columns)


def _jsonl(table: RowTable, columns: Columns) -> bytes:
    names = [column.name for column in table.columns]
    buffer = io.BytesIO()
    for values in zip(*(columns[name] for name in names), strict=True):
        buffer.write(to_json(dict(zip(names, values, strict=True))).encode() + b"\n")
    return buffer.getvalue()


def _parquet(table: RowTable, columns: Columns) -> bytes:
    schema, buffer = _schema(table), io.BytesIO()
    pq.write_table(pa.table({name: columns[name] for name in schema.names}, schema), buffer)
    return buffer.getvalue()


def _schema(table: RowTable) -> pa.Schema:
    return pa.schema([(column.name, TYPES[column.type].arrow) for column in table.columns])


# Reading


def read_rows(contents: Mapping[str, bytes]) -> dict[str, Columns]:
    """Return the rows of the JSONL files of a package. A table without a file has no rows. Raises BadPack."""
    return {table.name: _columns_of(table, contents.get(table.jsonl, b"")) for table in TABLES}


def _columns_of(table: RowTable, content: bytes) -> dict[str, list[Any]]:
    names = {column.name for column in table.columns}
    columns: dict[str, list[Any]] = {column.name: [] for column in table.columns}
    for number, line in enumerate(io.BytesIO(content), start=1):
        try:
            row = parse_json(line.decode())
        except ValueError:
            raise BadPack(f"{table.jsonl}, line {number} is not JSON in UTF-8.") from None
        if not isinstance(row, dict) or row.keys() != names:
            raise BadPack(f"{table.jsonl}, line {number} does not have the columns {', '.join(columns)}.")
        for column in table.columns:
            columns[column.name].append(_checked(row[column.name], column, f"{table.jsonl}, line {number}"))
    return columns


def _checked(value: Any, column: RowColumn, where: str) -> Any:
    if value is None:
        return None
    try:
        if TYPES[column.type].is_valid(value):
            if column.type != "datetime":
                return value
            if (time := datetime.fromisoformat(value)).tzinfo:
                return time.astimezone(UTC)
    except (OverflowError, ValueError):  # the value is out of the range of floats or dates
        pass
    raise BadPack(f"{where}: invalid {column.name} {value!r:.40}, expected {column.type}.")


def parquet_differences(
    table: RowTable, columns: Columns, contents: Mapping[str, bytes]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the location, JSONL value, and Parquet value of each difference between a Parquet file and JSONL columns.

    Raises BadPack if the file is unreadable, or if it decompresses to more bytes than its rows can have.
    """
    try:
        file, schema = pq.ParquetFile(io.BytesIO(contents[table.parquet])), _schema(table)
        for place in ("names", "types"):
            expected, actual = getattr(schema, place), getattr(file.schema_arrow, place)
            if actual != expected:
                yield place.replace("names", "columns"), ", ".join(map(str, expected)), ", ".join(map(str, actual))
                return
        if file.metadata.num_rows != n_rows(columns):
            yield "number of rows", n_rows(columns), file.metadata.num_rows
            return
        n_bytes = sum(file.metadata.row_group(group).total_byte_size for group in range(file.num_row_groups))
        if n_bytes > SMALL + len(contents.get(table.jsonl, b"")):
            raise BadPack(f"{table.parquet} decompresses to {n_bytes:,} bytes, more than the same rows take as JSON.")
        start = 0
        for batch in file.iter_batches(ROWS_AT_ONCE):
            for name in schema.names:
                expected = columns[name][start : start + batch.num_rows]
                values = zip(expected, batch.column(name).to_pylist(), strict=False)
                for place, (value, other) in enumerate(values, start):
                    if value != other:
                        yield f"line {place + 1}, {name}", value, other
            start += batch.num_rows
    except (pa.ArrowException, OSError, OverflowError, ValueError) as error:
        raise BadPack(f"Cannot read {table.parquet} as Parquet ({str(error).splitlines()[0]:.100}).") from None


# Recomputed report


# Tables whose integer columns are arrays
LARGE = ("statements", "judgments", "draws", "clusters", "harvested", "judge_answers")
MOST_WANTED = 10_000  # maximum number of required judgments of a statement
MOST_TUPLES = 100_000_000  # maximum number of tuples of a harvest

# Table, column, minimum, and maximum. The maximum is the number of rows of a table, or a constant above.
RANGES = (
    ("judgments", "statement", 1, "statements"),
    ("draws", "statement", 1, "statements"),
    ("draws", "stratum", 1, "strata"),
    ("clusters", "cluster", 0, "tuples"),
    ("strata", "harvest", 1, "harvests"),
    ("prompts", "harvest", 1, "harvests"),
    ("harvested", "harvest", 1, "harvests"),
    ("judge_answers", "run", 1, "judge_runs"),
    ("statements", "n_wanted", 0, "judgments"),
    ("strata", "rank_from", 1, "tuples"),
    ("strata", "rank_to", 0, "tuples"),
    ("strata", "population", 0, "tuples"),
    ("harvests", "n_tuples", 0, "tuples"),
    ("harvests", "last_rank", 0, "tuples"),
    ("draws", "rank", 1, "tuples"),
    ("harvested", "rank", 1, "tuples"),
)


def recompute(values: Rows, facts: Facts) -> tuple[dict[str, Any], list[tuple[str, str, str]]]:
    """Return the report's document as computed from the rows, and the verdicts that do not match the judgments.

    facts: result of `round_facts`. Each returned verdict has a location, the value in the file, and the value computed
    from the judgments. Raises BadPack.
    """
    try:
        rows, differences = rows_of_values(values, facts["quorum"])
        times, conduct = rows["judgments"]["judged_at"], facts["conduct"]
        ends = (end(times).isoformat(timespec="seconds") if times else None for end in (min, max))
        dates = conduct["dates"] | dict(zip(("first_judgment_at", "last_judgment_at"), ends, strict=True))
        facts = {**facts, "conduct": {**conduct, "dates": dates}}
        return document_of_rows(rows, facts, section_facts=facts), differences
    except BadPack:
        raise
    except (DomainError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BadPack(f"The rows of this package yield no report ({reason:.150}). They may be altered.") from error


def rows_of_values(values: Rows, quorum: int) -> tuple[dict[str, Columns], list[tuple[str, str, str]]]:
    """Return the columns of evaluation.evidence.tables, and the verdicts that do not match the counted judgments.

    values: result of `read_rows`. The returned verdicts are those of `recompute`. Raises BadPack.
    """
    _check_references(values)
    rows: dict[str, dict[str, Any]] = {
        table.name: {column.name: _column(table, column, values[table.name][column.name]) for column in table.columns}
        for table in TABLES
    }
    statements, judgments = rows["statements"], rows["judgments"]
    if (np.diff(statements["is_gold"].astype(np.int8)) < 0).any():
        raise BadPack("rows/statements.jsonl: gold statements must come last.")
    number = {code: position for position, code in enumerate(values["annotators"]["annotator"])}
    judgments["annotator"] = np.array([number[code] for code in values["judgments"]["annotator"]], WHOLE)
    is_counted = judgments["status"] == COUNTED
    place = (judgments["statement"][is_counted] - 1) * len(LABELS) + judgments["label"][is_counted]
    counts = np.bincount(place, minlength=n_rows(statements) * len(LABELS)).reshape(-1, len(LABELS)).tolist()
    verdicts, differences = [], []
    columns = (counts, statements["n_wanted"].tolist(), statements["is_gold"], values["statements"]["verdict"])
    for number, (row, n, is_gold, recorded) in enumerate(zip(*columns, strict=True), start=1):
        verdicts.append("" if is_gold else str(task_verdict(*row, n, quorum) or ""))
        if verdicts[-1] != (recorded or "") and not is_gold:
            differences.append((f"rows/statements.jsonl, line {number}, verdict", recorded or "", verdicts[-1]))
    statements["verdict"] = coded(verdicts, VERDICTS)
    if not n_rows(rows["judge_runs"]):
        rows["judge_runs"] = rows["judge_answers"] = {}
    if not n_rows(rows["clusters"]):
        rows["clusters"] = {}
    elif any(list(values["clusters"][name]) != list(values["draws"][name]) for name in ("stratum", "statement")):
        raise BadPack("rows/clusters.jsonl: stratum and statement must equal those of rows/draws.jsonl.")
    _derive_from_harvested(rows)
    return rows, differences


def _column(table: RowTable, column: RowColumn, values: Sequence[Any]) -> Any:
    if column.values:
        try:
            return coded(values, column.values)
        except KeyError as unknown:
            raise BadPack(f"{table.jsonl}: invalid {column.name} {unknown.args[0]!r:.40}.") from None
    if table.name not in LARGE or column.type in ("string", "datetime"):
        return values
    if column.type == "number":
        return np.array(values, FLOAT)
    if column.type == "boolean":
        return np.array(values, dtype=np.bool_)
    is_rank = (table.name, column.name) == ("draws", "rank")
    return np.array([value or 0 for value in values] if is_rank else values, WHOLE)


def _derive_from_harvested(rows: dict[str, dict[str, Any]]) -> None:
    """Derive the columns of harvests that the database query returns otherwise: cuts base:k and curated ranks."""
    harvests, harvested = rows["harvests"], rows["harvested"]
    number, rank = harvested["harvest"], harvested["rank"]
    if (np.diff(number) < 0).any() or (np.diff(rank)[np.diff(number) == 0] <= 0).any():
        raise BadPack("rows/harvested.jsonl: rows must be sorted by harvest and rank.")
    harvests |= {"kept_by_base": [], "hidden": [], "sensitive": []}
    for harvest, scale in zip(harvests["harvest"], harvests["score_scale"], strict=True):
        place = slice(*np.searchsorted(number, [harvest, harvest + 1]).tolist())
        ranks, score, left_out = (harvested[name][place] for name in ("rank", "score", "left_out"))
        kth = {base: score[ranks == base] for base in BASES if scale in LOGARITHMS}
        n_kept = {k: int(np.count_nonzero(score >= base[0] + log(0.1))) for k, base in kth.items() if len(base)}
        harvests["kept_by_base"].append(n_kept)
        harvests["hidden"].append(ranks[left_out == HIDDEN].tolist())
        harvests["sensitive"].append(ranks[left_out == SENSITIVE].tolist())


def _check_references(rows: Rows) -> None:
    """Raise BadPack for references to missing rows, and for numbers out of range."""
    n = {name: n_rows(rows[name]) for name in ("statements", "strata", "harvests", "judge_runs")}
    n_max = {**n, "judgments": MOST_WANTED, "tuples": MOST_TUPLES}
    for table, column, least, most in RANGES:
        for number, value in enumerate(rows[table][column], start=1):
            if value is not None and not least <= value <= n_max[most]:
                raise BadPack(f"rows/{table}.jsonl, line {number}: {column} {value} is out of range.")
    for table, column in (("statements", "statement"), ("harvests", "harvest"), ("strata", "stratum")):
        if list(rows[table][column]) != list(range(1, n_rows(rows[table]) + 1)):
            raise BadPack(f"rows/{table}.jsonl: {column} must be numbered from 1.")


# Audit log

# Hashes of the audit log's entries about the round, up to the head that the report names. The hashed text is included
# if the entry does not identify anyone. Otherwise, only the hash is included: for entries with an actor, whose code the
# operators of the installation could look up, and for entries with a name or email address.
AUDIT = "audit.jsonl"
ACTIONS = ("judgments.sealed", "round.opened", "round.imported", "round.closed", "round.reopened")


def audit_files(round: Round, head: Mapping[str, Any], scrub: Scrub) -> list[PackFile]:
    """Return the file of the audit log, or an empty list if the report names no head of the audit log.

    Raises OtherTrail.
    """
    if not head["number"]:
        return []
    last = Event.objects.filter(number=head["number"]).first()
    if last is None or last.hash != head["hash"]:
        raise DomainError(
            "OtherTrail",
            f"The audit log has no entry {head['number']} with the hash in the report. Run "
            f"{PROGRAM} audit verify to find altered entries.",
        )
    about = Event.objects.sealed().filter(project_id=round.project_id, action__in=ACTIONS, number__lt=last.number)
    entries = [entry for entry in about.iterator() if entry.known_facts.get("round") == round.name]
    lines = ""
    for entry in (*entries, last):
        text = hashed_text(entry)
        names_nobody = entry.action in ACTIONS and not entry.actor and scrub(text) == text
        chain = {"number": entry.number, "previous_hash": entry.previous_hash, "hash": entry.hash}
        lines += to_json(chain | {"hashed": text if names_nobody else None}) + "\n"
    return [PackFile(AUDIT, lines.encode(), "application/jsonl", "Hashes of the audit log up to the report's head.")]


class Chain:
    """Verification of a package's audit log. problems: sentences that describe errors.

    n_recomputed: number of recomputed hashes.
    """

    def __init__(self, content: bytes, head: Mapping[str, Any]) -> None:
        self.n_recomputed = 0
        self.is_head_recomputed = False
        self.problems = list(self._problems(content, head))

    def _problems(self, content: bytes, head: Mapping[str, Any]) -> Iterator[str]:
        try:
            lines = [parse_json(line) for line in content.decode().splitlines()]
            number = digest = None
            for line in lines:
                if number is not None and line["number"] <= number:
                    yield f"{AUDIT}, entry {line['number']}: out of order after entry {number}"
                if number is not None and line["number"] == number + 1 and line["previous_hash"] != digest:
                    yield f"{AUDIT}, entry {line['number']}: previous hash does not match the preceding entry"
                number, digest, text = line["number"], line["hash"], line["hashed"]
                self.is_head_recomputed = text is not None
                if text is not None:
                    self.n_recomputed += 1
                    if sha256(text) != digest or parse_json(text)[:2] != [line["previous_hash"], number]:
                        yield f"{AUDIT}, entry {number}: hash does not match the text"
            if (number or 0) != head["number"] or (number and digest != head["hash"]):
                named = f"{head['number']} with {head['hash']:.16}…"
                yield f"{AUDIT}: ends in entry {number or 0}; the report names {named}"
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            yield f"{AUDIT}: cannot be read ({error!s:.100})"
