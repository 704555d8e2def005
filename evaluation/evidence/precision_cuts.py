"""`precision:0.8`: a cut from judgments, made a cut by score (settings.HOOKS, "cut_from_judgments")."""

from __future__ import annotations

from math import floor

import numpy as np

from annotation.models import Draw, Round, Stratum
from evaluation.evidence.arrays import ACCEPTED, patterns_of
from evaluation.evidence.cells import DrawnVerdicts
from evaluation.statistics.cut_rates import (
    Cuts,
    KeptPart,
    RankedStrata,
    bounded_parts,
    largest_part,
    score_cuts,
    surely_largest_part,
)
from evaluation.statistics.finite_population import EMPTY_STRATUM
from kgharvest.harvests.cuts import BadCut, Cut, ScoreCut
from kgharvest.models import HarvestJob
from kgharvest.pages.number_format import counted, share, share_with_interval


def score_cut(job: HarvestJob, cut: Cut) -> ScoreCut:
    """Return the cut by score that keeps the most tuples at the wanted precision, as the newest judged round sees it.

    Raises BadCut if nothing of the job is judged, or if no part of it is as precise.
    """
    round, cuts = _judged_cuts(job, cut)
    part = surely_largest_part(bounded_parts(cuts), cut.value) if _surely(cut) else largest_part(cuts, cut.value)
    if part is None:
        raise BadCut(_out_of_reach(cut, cuts, round))
    threshold = floor(part.score * 1000) / 1000  # short enough to be typed again, and not above the score itself
    return ScoreCut(Cut("score", threshold), f"{cut} = score >= {threshold}, estimated {_estimate(part, round)}")


def _surely(cut: Cut) -> bool:
    return cut.kind == "precision-low"


def _judged_cuts(job: HarvestJob, cut: Cut) -> tuple[Round, Cuts]:
    draws = Draw.objects.filter(stratum__job=job, harvested_tuple__job=job)
    judged = draws.exclude(task__verdict="").order_by("-stratum__round")
    newest = judged.values_list("stratum__round", flat=True).first()
    if newest is None:
        raise BadCut(f"{cut} needs judgments, and no tuple of {job} (job {job.pk}) has a verdict; judge a round of it.")
    round = Round.objects.get(pk=newest)
    strata = Stratum.objects.sampled().filter(round=round, job=job).order_by("pk")
    keys, *ranges = map(np.array, zip(*strata.values_list("pk", "rank_from", "rank_to", "population"), strict=True))
    rows = draws.filter(stratum__round=round).order_by("harvested_tuple__rank")
    labels = (f"task__{name}" for name in ("n_true", "n_false", "n_unjudgeable", "n_wanted"))
    columns = ("stratum", "harvested_tuple__rank", "harvested_tuple__score", *labels)
    stratum, rank, score, *counts, n_wanted = map(np.array, zip(*rows.values_list(*columns), strict=True))
    patterns = patterns_of(np.column_stack(counts), np.maximum(n_wanted, round.least_k))
    number = np.searchsorted(keys, stratum)
    drawn = DrawnVerdicts(len(keys), (number, np.arange(len(number))), patterns, round.quorum)
    accepted = drawn.of_draws(ACCEPTED)
    is_judged = accepted.n > 0
    ranked = RankedStrata(*ranges, (number, rank, accepted))
    return round, score_cuts(ranked, np.arange(len(keys)), rank[is_judged], score[is_judged].astype(np.float64))


def _out_of_reach(cut: Cut, cuts: Cuts, round: Round) -> str:
    start = (
        f"No part of this harvest reaches {'a lower bound' if _surely(cut) else 'a precision'} of {share(cut.value)}"
    )
    if not len(cuts.share):
        return f"{start}: {EMPTY_STRATUM}"
    parts = bounded_parts(cuts) if _surely(cut) else [cuts.part(int(cuts.share.argmax()))]
    best = max(parts, key=lambda part: part.low)
    return f"{start}; the best has {_estimate(best, round)}."


def _estimate(part: KeptPart, round: Round) -> str:
    tuples = counted(part.n, "judged tuple")
    source = "" if round.source == Round.Source.PEOPLE else f" ({round.get_source_display()})"
    return f"{share_with_interval(part.precision, part.low, part.high)} from {tuples} of round {round}{source}"
