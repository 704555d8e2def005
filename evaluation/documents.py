"""The report of a round as one JSON document, computed from counts. Pure: no database, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evaluation.comparisons import METHOD_OF_COMPARISONS, Side, compare_sides
from evaluation.metrics.agreement import fleiss_kappa, krippendorff_alpha, percent_agreement
from evaluation.metrics.intervals import macro_average, rate

METHOD = (
    "Verdict: accepted if more than half of a statement's judgments are True, rejected if more than half are False, "
    "else undecided; incomplete statements are left out. "
    "Accuracy and rejection: shares of a cell's own draws that have a verdict, with 95 % Wilson intervals. "
    "Macro averages: mean over relations. All statements together: not weighted by the sizes of the harvests that "
    "they were drawn from, and therefore without an interval. "
    "Agreement: Krippendorff's alpha, nominal, over statements with two or more judgments; interval: 2.5 % and 97.5 % "
    "quantiles of 5,000 bootstrap resamples of statements. Percent agreement: share of agreeing pairs of judgments. "
    "Fleiss' kappa: over all statements, where each has the same number of judgments. "
    f"{METHOD_OF_COMPARISONS}"
)


class CellKey(NamedTuple):
    """model and setting are None for imported judgments that name none."""

    relation: str
    model: str | None
    setting: str | None


@dataclass
class VerdictCounts:
    accepted: int = 0
    rejected: int = 0
    undecided: int = 0
    incomplete: int = 0

    @property
    def n(self) -> int:
        """The number of statements with a verdict."""
        return self.accepted + self.rejected + self.undecided

    def __add__(self, other: VerdictCounts) -> VerdictCounts:
        return VerdictCounts(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


class Pattern(NamedTuple):
    """How many judgments of each label a statement received, and how many statements show this."""

    n_true: int
    n_false: int
    n_unjudgeable: int
    n_tasks: int


class AnnotatorPair(NamedTuple):
    """On how many of the statements that two annotators both judged they gave the same label."""

    a: str
    b: str
    n_shared: int
    n_agreeing: int


@dataclass(frozen=True)
class Evidence:
    """Everything a report rests on.

    cells: in the order of the report. patterns: sorted, gold left out. annotators: counts of labels by code.
    annotator_pairs: those who share a statement, a before b, sorted.
    n_shared: statements with a verdict that two sides drew. demonstrators: LMs of the round whose quality says nothing
    about others.
    """

    round: str
    source: str
    seed: int
    n_tasks: int
    n_complete: int
    n_judgments: int
    cells: dict[CellKey, VerdictCounts]
    n_shared: Mapping[frozenset[Side], int]
    patterns: Sequence[Pattern]
    annotators: dict[str, dict[str, int]]
    annotator_pairs: Sequence[AnnotatorPair]
    demonstrators: Sequence[str]


def build_document(evidence: Evidence) -> dict[str, Any]:
    """Return the report's JSON. The same evidence gives the same document: the bootstrap is seeded by the round."""
    patterns = np.array([pattern[:3] for pattern in evidence.patterns], dtype=np.int64).reshape(-1, 3)  # (P, 3)
    n_tasks = np.array([pattern.n_tasks for pattern in evidence.patterns], dtype=np.int64)  # (P,)
    accuracies = {key: rate(counts.accepted, counts.n).value for key, counts in evidence.cells.items()}
    return {
        "round": evidence.round,
        "source": evidence.source,
        "n_tasks": evidence.n_tasks,
        "n_complete": evidence.n_complete,
        "n_judgments": evidence.n_judgments,
        "alpha": _alpha(patterns, n_tasks, evidence.seed),
        # Unjudgeable as missing: the column is left out, so those judgments pair with nothing.
        "alpha_without_unjudgeable": _alpha(patterns[:, :2], n_tasks, evidence.seed),
        "percent_agreement": percent_agreement(patterns, n_tasks),
        "fleiss_kappa": fleiss_kappa(patterns, n_tasks)._asdict(),
        "cells": [{**key._asdict(), **_rates(counts)} for key, counts in evidence.cells.items()],
        "totals": list(_totals(evidence.cells)),
        "comparisons": compare_sides(accuracies, evidence.n_shared, evidence.seed),
        "annotators": [{"annotator": code, **labels} for code, labels in sorted(evidence.annotators.items())],
        "annotator_pairs": [
            {"a": pair.a, "b": pair.b, "n_shared": pair.n_shared, "agreement": pair.n_agreeing / pair.n_shared}
            for pair in evidence.annotator_pairs
        ],
        "notes": list(_notes(evidence)),
    }


def _alpha(patterns: np.ndarray, n_tasks: np.ndarray, seed: int) -> dict[str, Any]:
    return krippendorff_alpha(patterns, n_tasks, np.random.default_rng(seed))._asdict()


def _rates(counts: VerdictCounts) -> dict[str, Any]:
    accuracy = rate(counts.accepted, counts.n)
    return {
        "n": counts.n,
        "accepted": counts.accepted,
        "rejected": counts.rejected,
        "undecided": counts.undecided,
        "incomplete": counts.incomplete,
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "rejection": rate(counts.rejected, counts.n).value,
    }


def _pooled(cells: list[VerdictCounts]) -> dict[str, Any]:
    """Return the rates of all statements together; no interval for several cells, which are sampled unequally."""
    rates = _rates(sum(cells, VerdictCounts()))
    return rates if len(cells) == 1 else rates | {"accuracy_low": None, "accuracy_high": None}


def _totals(cells: dict[CellKey, VerdictCounts]) -> Iterable[dict[str, Any]]:
    """Yield one total per model and setting, in the order in which they first appear."""
    for model, setting in dict.fromkeys((key.model, key.setting) for key in cells):
        own = [counts for key, counts in cells.items() if (key.model, key.setting) == (model, setting)]
        rates = [_rates(counts) for counts in own]
        yield {
            "model": model,
            "setting": setting,
            **_pooled(own),
            "macro_accuracy": macro_average(each["accuracy"] for each in rates),
            "macro_rejection": macro_average(each["rejection"] for each in rates),
            "n_relations": sum(each["accuracy"] is not None for each in rates),
        }


def _notes(evidence: Evidence) -> Iterable[str]:
    """Yield what a reader of the numbers must know, one sentence each."""
    if evidence.source == "simulated":
        yield "The judgments are simulated, not people: they say nothing about what is true."
    if evidence.source == "imported":
        yield "The judgments were imported."
    if evidence.demonstrators:
        names = ", ".join(evidence.demonstrators)
        yield f"Demonstrator: the accuracy of {names} says nothing about other LMs."
    if open_tasks := evidence.n_tasks - evidence.n_complete:
        yield f"{open_tasks} of {evidence.n_tasks} statements are incomplete and left out of the rates."
