"""What excluding an annotator would change, found without changing anything."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.db.models import Count

from annotation.judging.verdicts import Verdict, task_verdict, wanted_if_split
from annotation.models import Annotator, Draw, Judgment, Label, Round, Stratum
from annotation.rounds.progress import OUTCOMES
from annotation.rounds.statistics import agreement

INCOMPLETE = "incomplete"
Outcomes = Mapping[str, int]  # how many statements have which of OUTCOMES


class _Judged(NamedTuple):
    """A way in which the annotator's tasks look alike: what they said and how the task stands."""

    label: str
    n_true: int
    n_false: int
    n_unjudgeable: int
    verdict: str

    @property
    def before(self) -> str:
        return self.verdict or INCOMPLETE

    def counts_without(self) -> tuple[int, int, int]:
        counters = zip(Label.values, (self.n_true, self.n_false, self.n_unjudgeable), strict=True)
        return tuple(n - (label == self.label) for label, n in counters)

    def outcome_without(self, round: Round) -> str:
        """A task wants its k judgments back, unless two that agree are enough; an imported one has those it has."""
        counts = self.counts_without()
        n_wanted = round.judgments_per_task
        if round.third_only_if_split:
            n_wanted = wanted_if_split(*counts)
        elif round.source == Round.Source.IMPORTED:
            n_wanted = sum(counts) or n_wanted
        return task_verdict(*counts, n_wanted, round.quorum) or INCOMPLETE


def exclusion_effect(annotator: Annotator) -> dict[str, Any]:
    """Return, as JSON, what excluding the annotator now would do.

    n_judgments: taken out. changes: how many tasks go from which outcome to which other. cells, agreement: before and
    after. A cell's accuracy weighs its strata by their populations where these are known.
    """
    counted = Judgment.objects.counted().filter(annotator=annotator).order_by()
    rows = counted.values_list("label", *(f"task__{name}" for name in _Judged._fields[1:])).annotate(n=Count("pk"))
    judged = {_Judged(*row): n for *row, n in rows}
    return {
        "n_judgments": sum(judged.values()),
        "changes": _changes(annotator.round, judged),
        "cells": _cells(annotator),
        "agreement": _agreement(annotator.round, judged),
    }


def _changes(round: Round, judged: Mapping[_Judged, int]) -> list[dict[str, Any]]:
    changes: Counter[tuple[str, str]] = Counter()
    for each, n in judged.items():
        changes[each.before, each.outcome_without(round)] += n
    return [
        {"before": before, "after": after, "n": n} for (before, after), n in sorted(changes.items()) if before != after
    ]


def _agreement(round: Round, judged: Mapping[_Judged, int]) -> dict[str, Any]:
    counters = ("n_true", "n_false", "n_unjudgeable")
    rows = round.tasks.without_gold().order_by().values_list(*counters).annotate(n=Count("pk"))
    before = Counter({tuple(counts): n for *counts, n in rows})
    after = before.copy()
    for each, n in judged.items():
        after[each.n_true, each.n_false, each.n_unjudgeable] -= n
        after[each.counts_without()] += n
    return {
        name: agreement([[*counts, n] for counts, n in sorted(patterns.items())])
        for name, patterns in (("before", before), ("after", after))
    }


# -- cells -------------------------------------------------------------------------------------------------------------


def _cells(annotator: Annotator) -> list[dict[str, Any]]:
    before = _outcomes(annotator.round)
    after = {stratum: Counter(outcomes) for stratum, outcomes in before.items()}
    for stratum, each, n in _drawn_and_judged(annotator):
        after[stratum][each.before] -= n
        after[stratum][each.outcome_without(annotator.round)] += n
    cells = defaultdict(list)
    for stratum in annotator.round.strata.select_related("relation", "language_model"):
        model = stratum.language_model.short_name if stratum.language_model else ""
        cells[stratum.relation.name, model, stratum.setting].append(stratum)
    return [
        {
            **dict(zip(("relation", "model", "setting"), cell, strict=True)),
            "before": _rate(strata, before),
            "after": _rate(strata, after),
        }
        for cell, strata in sorted(cells.items())
    ]


def _outcomes(round: Round) -> dict[int, Counter]:
    outcomes: defaultdict[int, Counter] = defaultdict(Counter)
    drawn = Draw.objects.filter(stratum__round=round).order_by()
    for stratum, verdict, n in drawn.values_list("stratum", "task__verdict").annotate(n=Count("pk")):
        outcomes[stratum][verdict or INCOMPLETE] += n
    return outcomes


def _drawn_and_judged(annotator: Annotator):
    counted = Judgment.objects.counted().filter(annotator=annotator, task__draws__stratum__round=annotator.round)
    columns = ("task__draws__stratum", "label", *(f"task__{name}" for name in _Judged._fields[1:]))
    for stratum, *row, n in counted.order_by().values_list(*columns).annotate(n=Count("pk")):
        yield stratum, _Judged(*row), n


def _rate(strata: list[Stratum], outcomes: Mapping[int, Outcomes]) -> dict[str, Any]:
    """Return n_judged and the accuracy of a cell, None while nothing in it has a verdict."""
    decided = [
        (stratum, outcomes[stratum.pk], _n_decided(outcomes[stratum.pk]))
        for stratum in strata
        if stratum.pk in outcomes
    ]
    decided = [each for each in decided if each[2]]
    if not decided:
        return {"n": 0, "accuracy": None}
    weights = [stratum.population or n for stratum, _, n in decided]
    accepted = [weight * counts[Verdict.ACCEPTED] / n for weight, (_, counts, n) in zip(weights, decided, strict=True)]
    return {"n": sum(n for *_, n in decided), "accuracy": sum(accepted) / sum(weights)}


def _n_decided(outcomes: Outcomes) -> int:
    return sum(outcomes[outcome] for outcome in OUTCOMES if outcome != INCOMPLETE)
