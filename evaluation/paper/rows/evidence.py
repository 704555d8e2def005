"""The evidence of a report from the raw rows of a pack: the same objects that `evaluation.evidence` gathers.

Each entry that does not depend on the source is computed by a function of `evaluation.evidence`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import numpy as np

from annotation.judges.labels import UNPARSABLE
from annotation.judging.verdicts import task_verdict
from annotation.models import Adjudication, Annotator
from evaluation.evidence.arrays import (
    BASES,
    Conduct,
    Evidence,
    ExcludedJudgments,
    Judgments,
    SampledHarvest,
    StratumKey,
)
from evaluation.evidence.conduct import HARVEST, SampledFrom, annotator_counts, cell_entries, excluded_judgments
from evaluation.evidence.judge_answers import CODES, DESCRIBED, JudgeAnswers, RunLabels, judge_answers, labels_by_votes
from evaluation.evidence.judged_population import GROUP_OF_LABEL, JudgedTuples, judged_tuples
from evaluation.evidence.queries import (
    LABEL_CODES,
    LOGARITHMS,
    VERDICT_CODES,
    floats,
    renumber_annotators,
    sorted_draws,
    sorted_judgments,
    whole,
)
from evaluation.paper.rows.gathering import COUNTED, EXCLUDED, GOLD, HIDDEN, LATE, SENSITIVE, SUPERSEDED
from evaluation.paper.rows.round_facts import ROUND
from evaluation.paper.rows.tables import BadPack, Columns, PackRows, n_rows
from evaluation.reports.document import build_document
from kgharvest.bulk.file_reading import parse_json
from kgharvest.errors import DomainError
from kgharvest.statistics.arrays import INCOMPLETE, Codes, Flags, Floats
from kgharvest.statistics.judge_assisted import OTHER
from kgharvest.statistics.judge_quality import N_LABELS
from kgharvest.statistics.sides import CellKey, Side

THIRD = 3

Facts = Mapping[str, Any]


def evidence_of(rows: PackRows, facts: Facts) -> Evidence:
    """Return what `evaluation.evidence.queries.gather_evidence` gathers from the database."""
    statements, strata, draws = rows["statements"], rows["strata"], rows["draws"]
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
        draws=sorted_draws(
            whole(draws["statement"]) - 1,
            whole(draws["stratum"]) - 1,
            whole([rank or 0 for rank in draws["rank"]]),
            floats(draws["score"]),
        ),
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
        return sorted_judgments(*(column[chosen] for column in (self.task, self.annotator, self.label, self.seconds)))

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


# Harvests


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


# Judges


def judges_of(rows: PackRows, evidence: Evidence) -> tuple[JudgeAnswers | None, JudgedTuples | None]:
    """Return the answers of the judge that the report used, and its labels of all tuples; None without a judge."""
    runs = rows["judge_runs"]
    if not n_rows(runs):
        return None, None
    votes: defaultdict[int, dict[int, list[int]]] = defaultdict(dict)
    scores: dict[int, list[float]] = {}
    answers = rows["judge_answers"]
    names = ("run", "tuple", "label", "score")
    for run, number, label, score in zip(*(answers[name] for name in names), strict=True):
        votes[run].setdefault(number, [0] * N_LABELS)[CODES[label or UNPARSABLE]] += 1
        if run == runs["run"][0] and score is not None:
            scores.setdefault(number, []).append(score)
    own, *others = (dict(zip(runs, values, strict=True)) for values in zip(*runs.values(), strict=True))
    answered = judge_answers(
        {name: own["kind" if name == "judge_kind" else name] for name in DESCRIBED}
        | {"revision": own["revision"] or ""},
        own["panel"],
        votes[own["run"]],
        {number: sum(given) / len(given) for number, given in scores.items()},
        [
            RunLabels(
                run["name"], run["model"], run["panel"], parse_json(run["differs"]), labels_by_votes(votes[run["run"]])
            )
            for run in others
        ],
        rows["statements"]["tuple"][: evidence.n_tasks],
    )
    return answered, _judged_tuples(rows, evidence, labels_by_votes(votes[1]))


def _judged_tuples(rows: PackRows, evidence: Evidence, labels: Mapping[int, str]) -> JudgedTuples:
    harvested = rows["harvested"]
    group = whole([GROUP_OF_LABEL.get(labels.get(number, ""), OTHER) for number in harvested["tuple"]])
    is_labelled = whole([number in labels for number in harvested["tuple"]])
    is_in_frame = whole([left_out is None for left_out in harvested["left_out"]])
    table = np.array([whole(harvested["rank"]), group, is_labelled, is_in_frame])
    harvests = {number: table[:, place] for number, place in places_of_harvests(rows).items()}
    runs = rows["judge_runs"]
    return judged_tuples(runs["name"][0], runs["model"][0], evidence, harvests)


# Conduct


def conduct_of(rows: PackRows, facts: Facts, evidence: Evidence) -> Conduct:
    """Count what the rows tell; repeat the rest from `round.json`."""
    told = facts["conduct"]
    statements, status = rows["statements"], Counter(rows["judgments"]["status"])
    gold = Counter(statements["gold_label"])
    counts = {f"n_{name}": status[name] for name in (SUPERSEDED, GOLD, COUNTED, EXCLUDED, LATE)}
    n_adjudicated = sum(label is not None for label in statements["adjudication"])
    times = rows["judgments"]["judged_at"]
    first, last = (limit(times).isoformat(timespec="seconds") if times else None for limit in (min, max))
    entry = {
        **told,
        "dates": told["dates"] | {"first_judgment_at": first, "last_judgment_at": last},
        "people": _people(rows, facts),
        "gold": {"n_true": gold["true"], "n_false": gold["false"]} | told["gold"],
        "judgments": {"n_given": status.total(), **counts} | told["judgments"],
        "adjudications": {"n_statements": n_adjudicated} | told["adjudications"],
        "cells": cell_entries(evidence, _sampled_from(rows)),
    }
    return Conduct(entry, _excluded_judgments(rows))


def _people(rows: PackRows, facts: Facts) -> dict[str, int]:
    annotators, judgments = rows["annotators"], rows["judgments"]
    said = set(zip(judgments["annotator"], judgments["status"], strict=True))
    blocked = {line["annotator"] for line in facts["conduct"]["timeline"] if line["kind"] == "limit_crossed"}
    return {
        **facts["conduct"]["people"],
        "n_judged": len({code for code, _ in said}),
        "n_counted": sum(status == COUNTED for _, status in said),
        "n_blocked_by_limits": len(blocked),
        **annotator_counts(
            zip(annotators["status"], annotators["is_trained"], annotators["n_judged"], strict=True), facts["quota"]
        ),
    }


def _excluded_judgments(rows: PackRows) -> dict[str, ExcludedJudgments]:
    annotators = zip(rows["annotators"]["annotator"], rows["annotators"]["status"], strict=True)
    excluded = {code for code, status in annotators if status == Annotator.Status.EXCLUDED}
    names = ("annotator", "status", "statement", "label")
    return excluded_judgments(
        (code, statement - 1, label)
        for code, status, statement, label in zip(*(rows["judgments"][name] for name in names), strict=True)
        if status == EXCLUDED and code in excluded
    )


def _sampled_from(rows: PackRows) -> dict[int, SampledFrom]:
    prompts: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    columns = (rows["prompts"][name] for name in ("harvest", "text", "origin", "weight"))
    for harvest, text, origin, weight in zip(*columns, strict=True):
        prompts[harvest].append({"text": text, "origin": origin, "weight": weight})
    harvests, harvested = rows["harvests"], rows["harvested"]
    sampled = {}
    for number, place in places_of_harvests(rows).items():
        made = {name: harvests[name][number - 1] for name in harvests}
        made |= {"job": made["fingerprint"], "harvested": made["n_tuples"]}
        left_out = list(zip(harvested["rank"][place], harvested["left_out"][place], strict=True))
        hidden, sensitive = ([rank for rank, own in left_out if own == kind] for kind in (HIDDEN, SENSITIVE))
        own = {name: made[name] for name in HARVEST}
        sampled[number] = SampledFrom(own, made["cut"] or "", hidden, sensitive, prompts[number])
    return sampled


# The document

MOST_WANTED = 10_000  # judgments of a statement
MOST_TUPLES = 100_000_000  # of a harvest

# Table and column, the least number that may stand there, and of what there are no more: rows of a table, or the above.
RANGES = (
    ("judgments", "statement", 1, "statements"),
    ("draws", "statement", 1, "statements"),
    ("draws", "stratum", 1, "strata"),
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


def recompute(rows: PackRows, facts: Facts) -> dict[str, Any]:
    """Return the document of the report that the rows give. facts: of `round_facts`. Raises BadPack."""
    try:
        _check_references(rows)
        return _document(rows, facts)
    except BadPack:
        raise
    except (DomainError, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BadPack(f"The rows of this pack make no report ({reason:.150}); were they altered?") from error


def _document(rows: PackRows, facts: Facts) -> dict[str, Any]:
    evidence = evidence_of(rows, facts)
    happened = conduct_of(rows, facts, evidence)
    answers, judged = judges_of(rows, evidence)
    return build_document(evidence, facts["equivalence_margin"], happened, answers, judged, section_facts=facts)


def _check_references(rows: PackRows) -> None:
    """Refuse numbers that point at no row, or that nothing can be counted with."""
    n = {name: n_rows(rows[name]) for name in ("statements", "strata", "harvests", "judge_runs")}
    n_max = {**n, "judgments": MOST_WANTED, "tuples": MOST_TUPLES}
    for table, column, least, most in RANGES:
        for number, value in enumerate(rows[table][column], start=1):
            if value is not None and not least <= value <= n_max[most]:
                raise BadPack(f"rows/{table}.jsonl, line {number}: {column} is {value}, which there is not.")
    for table, column in (("statements", "statement"), ("harvests", "harvest"), ("strata", "stratum")):
        if list(rows[table][column]) != list(range(1, n_rows(rows[table]) + 1)):
            raise BadPack(f"rows/{table}.jsonl: {column} does not count from 1.")
