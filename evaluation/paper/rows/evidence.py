"""The evidence of a report from the raw rows of a pack, as `evaluation.evidence` gathers it from the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import numpy as np

from annotation.judging.verdicts import task_verdict
from annotation.models import Adjudication, Annotator
from evaluation.evidence.arrays import BASES, Draws, Evidence, Judgments, SampledHarvest, StratumKey
from evaluation.evidence.queries import LABEL_CODES, LOGARITHMS, VERDICT_CODES, renumber_annotators
from evaluation.paper.rows.gathering import COUNTED, EXCLUDED, GOLD, LATE, SUPERSEDED
from evaluation.paper.rows.round_facts import ROUND
from evaluation.paper.rows.tables import BadPack, Columns, PackRows, n_rows
from kgharvest.bulk.file_reading import parse_json
from kgharvest.statistics.arrays import INCOMPLETE, Codes, Flags, Floats
from kgharvest.statistics.sides import CellKey, Side

THIRD = 3

Facts = Mapping[str, Any]


def whole(values: Sequence[int]) -> Codes:
    return np.array(values, dtype=np.int64)


def floats(values: Sequence[float | None]) -> Floats:
    return np.array(values, dtype=np.float64)  # None becomes NaN


def evidence_of(rows: PackRows, facts: Facts) -> Evidence:
    """Return what `evaluation.evidence.queries.gather_evidence` gathers from the database."""
    statements, strata = rows["statements"], rows["strata"]
    n_tasks = list(statements["is_gold"]).count(False)
    if any(statements["is_gold"][:n_tasks]):
        raise BadPack("rows/statements.jsonl: gold does not come last.")
    given = GivenJudgments(rows)
    counted, gold = given.of_status(COUNTED), given.gold(rows["annotators"])
    judgments, gold, annotators = renumber_annotators(counted, gold, rows["annotators"]["annotator"])
    number = {code: position for position, code in enumerate(annotators)}
    third = given.third_annotators(n_tasks) if facts["has_thirds"] else {}
    codes = rows["annotators"]["annotator"]
    keys = [CellKey(*key) for key in zip(strata["relation"], strata["model"], strata["setting"], strict=True)]
    cells = list(dict.fromkeys(keys))
    wanted = whole(statements["n_wanted"][:n_tasks])
    return Evidence(
        **{name: facts[name] for name in ROUND},
        verdict=_verdicts(judgments, wanted, facts["quorum"]),
        adjudicated=_adjudicated(statements["adjudication"][:n_tasks]),
        third=whole([number[codes[third[task]]] if task in third else -1 for task in range(n_tasks)]),
        wanted=np.maximum(wanted, facts["least_k"]),
        judgments=judgments,
        cells=cells,
        strata=_strata(strata, [cells.index(key) for key in keys]),
        draws=_draws(rows["draws"]),
        annotators=annotators,
        gold=gold,
        gold_truth=whole([LABEL_CODES[label] for label in statements["gold_label"][n_tasks:]]),
        harvests=_sampled_harvests(rows),
    )


class GivenJudgments:
    """The judgments, in the order of statements and then of time."""

    def __init__(self, rows: PackRows) -> None:
        judgments = rows["judgments"]
        number = {code: position for position, code in enumerate(rows["annotators"]["annotator"])}
        self.task = whole(judgments["statement"]) - 1
        self.annotator = whole([number[code] for code in judgments["annotator"]])
        self.label = whole([LABEL_CODES[label] for label in judgments["label"]])
        self.seconds = floats(judgments["seconds"])
        self.status = np.array(judgments["status"], dtype=object)
        if unknown := set(judgments["status"]) - {SUPERSEDED, GOLD, COUNTED, EXCLUDED, LATE}:
            raise BadPack(f"rows/judgments.jsonl: {sorted(map(str, unknown))[0]!r:.40} is no status of a judgment.")

    def of_status(self, status: str) -> Judgments:
        return self._at(self.status == status)

    def gold(self, annotators: Columns) -> Judgments:
        """Return the judgments of gold; an excluded annotator's answers tell nothing here."""
        is_in = np.array([status != Annotator.Status.EXCLUDED for status in annotators["status"]], dtype=bool)
        return self._at((self.status == GOLD) & is_in[self.annotator])

    def _at(self, chosen: Flags) -> Judgments:
        columns = [column[chosen] for column in (self.task, self.annotator, self.label, self.seconds)]
        order = np.lexsort((columns[1], columns[0]))
        return Judgments(*(column[order] for column in columns))

    def third_annotators(self, n_tasks: int) -> dict[int, int]:
        """Return, by task, the annotator of the counted judgment that was asked for because two differed.

        As `annotation.judging.third_judgments.third_annotators`: who spoke last for the first time, of three.
        """
        counted: dict[int, set[int]] = {}
        in_order: dict[int, list[int]] = {}
        for task, annotator, status in zip(self.task.tolist(), self.annotator.tolist(), self.status, strict=True):
            if task < n_tasks:
                in_order.setdefault(task, []).append(annotator)
                if status == COUNTED:
                    counted.setdefault(task, set()).add(annotator)
        return {
            task: [annotator for annotator in dict.fromkeys(in_order[task]) if annotator in own][-1]
            for task, own in counted.items()
            if len(own) == THIRD
        }


def _verdicts(judgments: Judgments, wanted: Codes, quorum: int) -> Codes:
    """Return the verdicts (T,) that the counted judgments give."""
    n_labels = len(LABEL_CODES)
    counts = np.bincount(judgments.task * n_labels + judgments.label, minlength=len(wanted) * n_labels)
    counts = counts.reshape(len(wanted), n_labels)
    verdicts = (task_verdict(*row, n, quorum) for row, n in zip(counts.tolist(), wanted.tolist(), strict=True))
    return whole([VERDICT_CODES[verdict or ""] for verdict in verdicts])


def verdict_differences(rows: PackRows, evidence: Evidence) -> list[tuple[str, str, str]]:
    """Return where the verdicts that are written down are not those of the judgments: place, written, counted."""
    written = rows["statements"]["verdict"]
    names = {code: verdict for verdict, code in VERDICT_CODES.items()}
    return [
        (f"rows/statements.jsonl, line {number + 1}, verdict", written[number] or "", names[code])
        for number, code in enumerate(evidence.verdict.tolist())
        if (written[number] or "") != names[code]
    ]


def _adjudicated(labels: Sequence[str | None]) -> Codes:
    return whole([INCOMPLETE if label is None else VERDICT_CODES[Adjudication.VERDICTS[label]] for label in labels])


def _strata(strata: Columns, cells: Sequence[int]) -> list[StratumKey]:
    numbers = (strata[name] for name in ("rank_from", "rank_to", "population", "harvest", "judge_label"))
    ranks = (None if text is None else parse_json(text) for text in strata["ranks"])
    return [
        StratumKey(cell, *span, label or "", of_stratum) if span[-1] else StratumKey(cell, None, None, None)
        for cell, *span, label, of_stratum in zip(cells, *numbers, ranks, strict=True)
    ]


def _draws(draws: Columns) -> Draws:
    task, stratum = whole(draws["statement"]) - 1, whole(draws["stratum"]) - 1
    columns = task, stratum, whole([rank or 0 for rank in draws["rank"]]), floats(draws["score"])
    order = np.lexsort((task, stratum))
    return Draws(*(column[order] for column in columns))


# -- harvests ----------------------------------------------------------------------------------------------------------


def places_of_harvests(rows: PackRows) -> dict[int, slice]:
    """Return where the tuples of each harvest stand in `harvested`, best ranks first."""
    numbers = whole(rows["harvested"]["harvest"])
    ranks = whole(rows["harvested"]["rank"])
    if (np.diff(numbers) < 0).any() or (np.diff(ranks)[np.diff(numbers) == 0] <= 0).any():
        raise BadPack("rows/harvested.jsonl is not in the order of harvests and ranks.")
    of_harvests = np.arange(1, n_rows(rows["harvests"]) + 1)
    first, last = (np.searchsorted(numbers, of_harvests, side=side).tolist() for side in ("left", "right"))
    return {number: slice(*ends) for number, *ends in zip(of_harvests.tolist(), first, last, strict=True)}


def _sampled_harvests(rows: PackRows) -> list[SampledHarvest]:
    harvests, places = rows["harvests"], places_of_harvests(rows)
    rank, score = whole(rows["harvested"]["rank"]), floats(rows["harvested"]["score"])
    sampled = []
    names = ("harvest", "model", "setting", "last_rank", "score_scale")
    for number, model, setting, last_rank, scale in zip(*(harvests[name] for name in names), strict=True):
        own_rank, own_score = rank[places[number]], score[places[number]]
        kept = {base: _kept_by_base(own_rank, own_score, base) for base in BASES if scale in LOGARITHMS}
        in_reach = {base: n for base, n in kept.items() if n is not None and n <= last_rank}
        sampled.append(SampledHarvest(number, Side(model, setting), last_rank, in_reach))
    return sampled


def _kept_by_base(rank: Codes, score: Floats, base: int) -> int | None:
    """Return how many tuples base:k keeps of a harvest; None where it has fewer than k."""
    kth = score[rank == base]
    return int(np.count_nonzero(score >= kth[0] + log(0.1))) if len(kth) else None
