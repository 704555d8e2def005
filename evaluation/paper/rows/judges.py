"""What judges said, from the raw rows of a pack, as `evaluation.evidence` gathers it from the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from annotation.judges.labels import UNPARSABLE, most_frequent
from annotation.judges.models import JudgeKind
from evaluation.evidence.arrays import Evidence
from evaluation.evidence.judge_answers import CODES, NO_ANSWER, JudgeAnswers, OtherRun, PanelLabels
from evaluation.evidence.judged_population import GROUP_OF_LABEL, JudgedTuples, judged_tuples
from evaluation.paper.rows.evidence import floats, places_of_harvests, whole
from evaluation.paper.rows.tables import Columns, PackRows
from kgharvest.bulk.file_reading import parse_json
from kgharvest.statistics.arrays import TRUE, Codes
from kgharvest.statistics.judge_assisted import OTHER
from kgharvest.statistics.judge_quality import N_LABELS

DESCRIBED = ("name", "model", "prompt_sha256", "temperature", "seed", "repeats", "threshold")


class RunAnswers:
    """The answers of one run: `label` by tuple, votes (U, 4) of each tuple, and the mean of its scores."""

    def __init__(self, rows: PackRows, run: int) -> None:
        self.votes: dict[int, list[int]] = {}
        scores: dict[int, list[float]] = {}
        answers = rows["judge_answers"]
        names = ("run", "tuple", "label", "score")
        for of_run, tuple_number, label, score in zip(*(answers[name] for name in names), strict=True):
            if of_run == run:
                self.votes.setdefault(tuple_number, [0] * N_LABELS)[CODES[label or UNPARSABLE]] += 1
                if score is not None:
                    scores.setdefault(tuple_number, []).append(score)
        self.scores = {number: sum(own) / len(own) for number, own in scores.items()}
        self.label = {number: most_frequent(Counter(self._named(own))) for number, own in self.votes.items()}

    @staticmethod
    def _named(votes: Sequence[int]) -> dict[str, int]:
        return {label: n for label, n in zip(CODES, votes, strict=True) if n}

    def codes(self, tuples: Sequence[int]) -> Codes:
        return whole([CODES[self.label[number]] if number in self.label else NO_ANSWER for number in tuples])


def judge_answers_of(rows: PackRows, evidence: Evidence) -> JudgeAnswers:
    """Return what `evaluation.evidence.judge_answers.gather_judge_answers` gathers from the database."""
    runs = _rows_of(rows["judge_runs"])
    own_run, *other_runs = runs
    statements = rows["statements"]["tuple"][: evidence.n_tasks]
    answers = {run["name"]: RunAnswers(rows, run["run"]) for run in runs}
    own = answers[own_run["name"]]
    shares = {number: votes[TRUE] / sum(votes) for number, votes in own.votes.items() if sum(votes) > 1}
    probabilities = own.scores if own_run["kind"] == JudgeKind.CAUSAL else shares
    scores = own.scores if own_run["kind"] == JudgeKind.SCORE else {}
    return JudgeAnswers(
        described={name: own_run[name] for name in DESCRIBED}
        | {"revision": own_run["revision"] or "", "judge_kind": own_run["kind"]},
        label=own.codes(statements),
        probability=floats([probabilities.get(number) for number in statements]),
        score=floats([scores.get(number) for number in statements]),
        repeats=whole(list(own.votes.values())).reshape(-1, N_LABELS),
        others=[_other_run(run, own, answers[run["name"]]) for run in other_runs],
        panel=_panel(own_run, runs, answers, statements),
    )


def _rows_of(columns: Columns) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _other_run(run: Mapping[str, Any], own: RunAnswers, other: RunAnswers) -> OtherRun:
    shared = sorted(own.label.keys() & other.label.keys())
    return OtherRun(run["name"], run["model"], parse_json(run["differs"]), own.codes(shared), other.codes(shared))


def _panel(
    own_run: Mapping[str, Any], runs: Sequence[Any], answers: Mapping[str, RunAnswers], statements: Sequence[int]
) -> PanelLabels | None:
    if not own_run["panel"]:
        return None
    names = sorted(run["name"] for run in runs if run["panel"] == own_run["panel"])
    return PanelLabels(own_run["panel"], names, np.column_stack([answers[name].codes(statements) for name in names]))


def judged_tuples_of(rows: PackRows, evidence: Evidence) -> JudgedTuples:
    """Return what `evaluation.evidence.judged_population.gather_judged_tuples` gathers from the database."""
    labels = RunAnswers(rows, 1).label
    harvested = rows["harvested"]
    group = whole([GROUP_OF_LABEL.get(labels.get(number, ""), OTHER) for number in harvested["tuple"]])
    is_labelled = whole([number in labels for number in harvested["tuple"]])
    is_in_frame = whole([left_out is None for left_out in harvested["left_out"]])
    table = np.array([whole(harvested["rank"]), group, is_labelled, is_in_frame])
    harvests = {number: table[:, place] for number, place in places_of_harvests(rows).items()}
    runs = rows["judge_runs"]
    return judged_tuples(runs["name"][0], runs["model"][0], evidence, harvests)
