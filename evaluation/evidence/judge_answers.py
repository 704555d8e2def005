"""What a judge answered about the statements of a round, beside what people said: arrays for its card.

Letters of shapes: T statements and the rest as in evaluation.evidence.arrays; U tuples that the judge was asked about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from django.db.models import Avg, Count

from annotation.judges.labels import LABEL_WORDS, check_one_judge, judge_labels, most_frequent
from annotation.judges.labels import UNPARSABLE as NO_LABEL
from annotation.judges.models import JudgeKind, JudgeRun
from annotation.models import Round
from evaluation.evidence.arrays import Evidence
from kgharvest.statistics.arrays import LABELS, TRUE, Codes, Floats
from kgharvest.statistics.judge_quality import N_LABELS, UNPARSABLE

CODES = {label: code for code, label in enumerate(LABELS)} | {NO_LABEL: UNPARSABLE}
NO_ANSWER = -1
DESCRIBED = (
    "name", "model", "revision", "judge_kind", "prompt_sha256", "temperature", "seed", "repeats", "threshold",
)  # fmt: skip
DIFFERENCES = {
    "model": "LM",
    "revision": "revision",
    "dtype": "number format",
    "judge_kind": "kind",
    "base_url": "address",
    "temperature": "temperature",
    "seed": "seed",
    "repeats": "repeats",
    "threshold": "threshold",
}
WORDING, ORDER_OF_LABELS = "wording of the prompt", "order of the labels"
TEXTS = {"instructions": "instructions", "examples": "examples"}  # what prompts say of each relation
ORDER_OF_EXAMPLES = "order of the examples"


class OtherRun(NamedTuple):
    """Another run of the round. differs: in what. own, other: labels (V,) of the tuples that both runs have."""

    name: str
    model: str
    differs: Sequence[str]
    own: Codes
    other: Codes


class PanelLabels(NamedTuple):
    """A panel with its runs: label (T, M), NO_ANSWER where a run has none."""

    name: str
    runs: Sequence[str]
    label: Codes


@dataclass(frozen=True)
class JudgeAnswers:
    """label (T,): codes of judge_quality, NO_ANSWER where there is none. probability (T,): that it gave to True; of a
    judge asked several times the share of its answers; NaN for none. score (T,): of a score judge, in nats, NaN for
    none. repeats (U, 4): answers by label. described: what defines the judge.
    """

    described: Mapping[str, Any]
    label: Codes
    probability: Floats
    score: Floats
    repeats: Codes
    others: Sequence[OtherRun]
    panel: PanelLabels | None


class RunLabels(NamedTuple):
    """A judge run with its label of each tuple. differs: from the run that the report used."""

    name: str
    model: str
    panel: str | None
    differs: Sequence[str]
    label: Mapping[int, str]


def gather_judge_answers(round: Round, run: JudgeRun) -> JudgeAnswers:
    """Raises SeveralJudges."""
    check_one_judge(run)
    votes: dict[int, list[int]] = {}
    rows = run.answers.order_by().values_list("knowledge_tuple", "label").annotate(n=Count("pk"))
    for tuple_id, label, n in rows.iterator():
        votes.setdefault(tuple_id, [0] * N_LABELS)[CODES[label]] = n
    scores = run.answers.exclude(score=None).order_by().values_list("knowledge_tuple").annotate(mean=Avg("score"))
    others = round.judge_runs.exclude(pk=run.pk).order_by("name")
    return judge_answers(
        {name: getattr(run, name) for name in DESCRIBED},
        run.panel,
        votes,
        dict(scores),
        [
            RunLabels(other.name, other.model, other.panel, differences(run, other), judge_labels(other))
            for other in others
        ],
        list(round.tasks.without_gold().order_by("position").values_list("knowledge_tuple", flat=True)),
    )


def judge_answers(
    described: Mapping[str, Any],
    panel: str | None,
    votes: Mapping[int, Sequence[int]],
    scores: Mapping[int, float],
    others: Sequence[RunLabels],
    statements: Sequence[int],
) -> JudgeAnswers:
    """Return the answers of one run.

    votes: counts of its labels by tuple, in the order of CODES. scores: its mean score by tuple. others: the other runs
    of the round. statements: tuples of the statements (T,).
    """
    labels = labels_by_votes(votes)
    kind = described["judge_kind"]
    shares = {number: counts[TRUE] / sum(counts) for number, counts in votes.items() if sum(counts) > 1}

    def of_statements(values: Mapping[int, float]) -> Floats:
        return np.array([values.get(number, np.nan) for number in statements], dtype=np.float64)

    compared = []
    for other in others:
        if other.label:
            shared = sorted(other.label.keys() & labels.keys())
            codes = _codes(labels, shared), _codes(other.label, shared)
            compared.append(OtherRun(other.name, other.model, other.differs, *codes))
    own = RunLabels(described["name"], described["model"], panel, (), labels)
    members = sorted((run for run in (own, *others) if panel and run.panel == panel), key=lambda run: run.name)
    return JudgeAnswers(
        described=described,
        label=_codes(labels, statements),
        probability=of_statements(scores if kind == JudgeKind.CAUSAL else shares),
        score=of_statements(scores if kind == JudgeKind.SCORE else {}),
        repeats=np.array(list(votes.values()), dtype=np.int64).reshape(-1, N_LABELS),
        others=compared,
        panel=PanelLabels(
            panel,
            [member.name for member in members],
            np.column_stack([_codes(member.label, statements) for member in members]),
        )
        if panel
        else None,
    )


def labels_by_votes(votes: Mapping[int, Sequence[int]]) -> dict[int, str]:
    return {number: most_frequent(dict(zip(CODES, counts, strict=True))) for number, counts in votes.items()}


def _codes(label_of: Mapping[int, str], tuple_ids: Sequence[int]) -> Codes:
    codes = (CODES[label_of[tuple_id]] if tuple_id in label_of else NO_ANSWER for tuple_id in tuple_ids)
    return np.fromiter(codes, dtype=np.int64, count=len(tuple_ids))


def differences(run: JudgeRun, other: JudgeRun) -> list[str]:
    """Return in what two runs differ, by what was asked rather than by how it was chosen."""
    differs = [word for name, word in DIFFERENCES.items() if getattr(run, name) != getattr(other, name)]
    if run.prompt_sha256 != other.prompt_sha256:
        one, two = (LABEL_WORDS.split(each.prompt.lower()) for each in (run, other))
        # The labels stand at the odd places.
        is_order = run.prompt != other.prompt and one[::2] == two[::2] and sorted(one[1::2]) == sorted(two[1::2])
        differs.append(ORDER_OF_LABELS if is_order else WORDING)
    relations = run.relation_texts.keys() & other.relation_texts.keys()
    for name, word in TEXTS.items():
        texts = [[each.relation_texts[relation].get(name, "") for relation in relations] for each in (run, other)]
        if texts[0] != texts[1]:
            one, two = ([sorted(text.split("\n\n")) for text in own] for own in texts)
            differs.append(ORDER_OF_EXAMPLES if name == "examples" and one == two else word)
    return differs


def statement_weights(evidence: Evidence) -> Floats:
    """Return (T,) for how many tuples of the round's cells each statement stands: the sum over its draws of one over
    their inclusion probability, 1 for draws from a population nobody knows."""
    drawn = np.bincount(evidence.draws.stratum, minlength=len(evidence.strata))
    population = evidence.population_of_stratum
    weight = np.where(population > 0, population / np.maximum(drawn, 1), 1.0)
    weights: Floats = np.bincount(evidence.draws.task, weight[evidence.draws.stratum], evidence.n_tasks)
    return weights


def relation_of_statement(evidence: Evidence) -> tuple[list[str], Codes]:
    """Return the relations, sorted, and the number (T,) of each statement's."""
    names = sorted({cell.relation for cell in evidence.cells})
    of_cell = np.array([names.index(cell.relation) for cell in evidence.cells], dtype=np.int64)
    relation = np.zeros(evidence.n_tasks, dtype=np.int64)
    relation[evidence.draws.task] = of_cell[evidence.cell_of_draw]
    return names, relation
