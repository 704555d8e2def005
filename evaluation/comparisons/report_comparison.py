"""Two reports laid beside each other: the same relations, the differences, the tests. Pure.

A report here is its document, or a published table in the same shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.comparisons.published import PublishedTable
from evaluation.evidence.arrays import CellKey, Side
from evaluation.rendering.figures.canvas import side_name
from evaluation.rendering.tables import ORIGINS, Column, Document, Kind, Rates, Row, Table, name_of
from evaluation.reports.sections.comparisons import Pair, comparison_in_words
from evaluation.reports.sections.rates import rates_of
from evaluation.statistics.paired_tests import holm, paired_difference
from kgharvest.names import short_name, shortest_names

FEWEST_RELATIONS = 2


@dataclass(frozen=True)
class Opponent:
    """One of the two. cells: by side, then by the relation's plain name, in the order of its report.

    origin: what its numbers rest on where that is not people.
    """

    name: str
    origin: str
    cells: Mapping[Side, Mapping[str, Mapping[str, Any]]]


def opponent(name: str, document: Document) -> Opponent:
    """LMs go by the last part of a folder or hub id: the paper's roberta-large is FacebookAI/roberta-large.

    Names that would be the same then stay as they are.
    """
    models = shortest_names(cell["model"] for cell in document["cells"] if cell["model"])
    relations = shortest_names((cell["relation"] for cell in document["cells"]), plain_name)
    cells: dict[Side, dict[str, Mapping[str, Any]]] = {}
    for cell in document["cells"]:
        side = Side(models.get(cell["model"]), cell["setting"])
        cells.setdefault(side, {})[relations[cell["relation"]]] = cell
    return Opponent(name, ORIGINS.get(document.get("source"), ""), cells)


def plain_name(relation: str) -> str:
    """Return what is left of a relation's name without its set, case and separators: NEED A TO DO B, need_a_to_do_b."""
    return re.sub(r"[\s_-]+", "_", short_name(relation).casefold())


def shared_relations(a: Opponent, b: Opponent) -> list[str]:
    known = [{relation for cells in each.cells.values() for relation in cells} for each in (a, b)]
    return sorted(known[0] & known[1])


# -- tables ------------------------------------------------------------------------------------------------------------


def side_by_side_table(a: Opponent, b: Opponent) -> Table:
    """The relations that both have, the columns of a before those of b; averages over these relations last."""
    relations = shared_relations(a, b)
    sides = [(each, side) for each in (a, b) for side in each.cells]
    rows = [Row((relation, *(_rates(each, side, relation) for each, side in sides))) for relation in relations]
    average = Row(("average", *(_average(each, side, relations) for each, side in sides)), is_summary=True)
    columns = [Column(side_name(side._asdict()), Kind.RATES, titled(each)) for each, side in sides]
    notes = ("Only relations that both have, by name. Averages are over these.",)
    body = (*rows, average) if rows else ()
    return Table("side-by-side", f"{a.name} and {b.name}", (Column("relation"), *columns), body, notes)


def titled(each: Opponent) -> str:
    return f"{each.name} ({each.origin})" if each.origin else each.name


def _rates(each: Opponent, side: Side, relation: str) -> Rates | None:
    cell = each.cells[side].get(relation)
    return None if cell is None else rates_of(cell)


def _average(each: Opponent, side: Side, relations: Sequence[str]) -> Rates | None:
    rates = [_rates(each, side, relation) for relation in relations]
    known = [rate for rate in rates if rate is not None and rate.accepted is not None]
    if not known:
        return None
    return Rates(*(float(np.mean([getattr(rate, share) for rate in known])) for share in ("accepted", "rejected")))


def published_table(paper: PublishedTable) -> Table:
    """A published table as it is printed, its own averages last."""
    relations = dict.fromkeys(key.relation for key in paper.cells)
    rows = [
        Row((relation, *(Rates(*paper.cells[CellKey(relation, *side)]) for side in paper.averages)))
        for relation in relations
    ]
    average = Row(("average", *(Rates(*shares) for shares in paper.averages.values())), is_summary=True)
    columns = [Column(name_of(side.setting), Kind.RATES, name_of(side.model)) for side in paper.averages]
    return Table("published", paper.title, (Column("relation"), *columns), (*rows, average))


def difference_table(a: Opponent, b: Opponent) -> Table:
    """Accuracy of a minus that of b per relation, for the sides that are compared."""
    pairs = list(matched_sides(a, b))
    rows = [
        Row((relation, *(_difference(a.cells[one], b.cells[other], relation) for one, other in pairs)))
        for relation in shared_relations(a, b)
    ]
    columns = [
        Column(" − ".join(side_name(side._asdict()) for side in dict.fromkeys(pair)), Kind.POINTS) for pair in pairs
    ]
    return Table("differences", "Differences in percentage points", (Column("relation"), *columns), tuple(rows))


def _difference(a: Mapping[str, Any], b: Mapping[str, Any], relation: str) -> float | None:
    accuracies = [cells[relation]["accuracy"] if relation in cells else None for cells in (a, b)]
    return None if None in accuracies else accuracies[0] - accuracies[1]


# -- tests -------------------------------------------------------------------------------------------------------------


def matched_sides(a: Opponent, b: Opponent) -> Iterator[tuple[Side, Side]]:
    """Yield what is compared: the same LM in the same setting; where there is none, the same setting of any LM."""
    same = [(side, side) for side in a.cells if side in b.cells]
    alike = [(one, other) for one in a.cells for other in b.cells if one.setting == other.setting]
    yield from same or alike


def comparisons_between(a: Opponent, b: Opponent, seed: int) -> list[dict[str, Any]]:
    """Compare the matched sides, paired by relation, after Holm for all of them; those that share two relations."""
    compared = []
    for one, other in matched_sides(a, b):
        differences = [_difference(a.cells[one], b.cells[other], relation) for relation in shared_relations(a, b)]
        known = np.array([difference for difference in differences if difference is not None])
        if len(known) >= FEWEST_RELATIONS:
            compared.append((one, other, paired_difference(known, np.random.default_rng(seed))))
    adjusted = holm([paired.p for *_, paired in compared])
    return [_entry(a, b, *each, p_holm) for each, p_holm in zip(compared, adjusted, strict=True)]


def _entry(a: Opponent, b: Opponent, one: Side, other: Side, paired, p_holm: float) -> dict[str, Any]:
    names = f"{name_of(one.model)} ({a.name})", f"{name_of(other.model)} ({b.name})"
    pair = Pair("models", one.setting, Side(names[0], one.setting), Side(names[1], one.setting))
    return {
        "kind": "models",
        "setting": one.setting,
        "a": names[0],
        "b": names[1],
        "n_relations": paired.n_relations,
        "difference": paired.difference,
        "low": paired.low,
        "high": paired.high,
        "p_sign_flip": paired.p,
        "p_holm": p_holm,
        "sentence": comparison_in_words(pair, paired, p_holm),
    }
