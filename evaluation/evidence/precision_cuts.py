"""`precision:0.8`: a cut from judgments, made a cut by score (settings.HOOKS, "cut_from_judgments")."""

from __future__ import annotations

from math import floor

import numpy as np

from annotation.judging.verdicts import Verdict
from annotation.models import Draw, Round
from evaluation.statistics.curves import KeptPart, kept_parts, largest_part
from kgharvest.harvests.cuts import BadCut, Cut, ScoreCut
from kgharvest.models import HarvestJob
from kgharvest.pages.number_format import counted, share, share_with_interval


def score_cut(job: HarvestJob, cut: Cut) -> ScoreCut:
    """Return the cut by score that keeps the most tuples at the wanted precision, as the newest judged round sees it.

    Raises BadCut if nothing of the job is judged, or if no part of it is as precise.
    """
    round, parts = _judged_parts(job, cut)
    part = largest_part(parts, cut.value, surely=cut.kind == "precision-low")
    if part is None:
        raise BadCut(_out_of_reach(cut, parts, round))
    threshold = floor(part.score * 1000) / 1000  # short enough to be typed again, and not above the score itself
    return ScoreCut(Cut("score", threshold), f"{cut} = score >= {threshold}, estimated {_estimate(part, round)}")


def _judged_parts(job: HarvestJob, cut: Cut) -> tuple[Round, list[KeptPart]]:
    judged = Draw.objects.filter(stratum__job=job, harvested_tuple__job=job).exclude(task__verdict="")
    newest = judged.order_by("-stratum__round").values_list("stratum__round", flat=True).first()
    if newest is None:
        raise BadCut(f"{cut} needs judgments, and no tuple of {job} (job {job.pk}) has a verdict; judge a round of it.")
    columns = ("harvested_tuple__score", "task__verdict", "inclusion_probability")
    scores, verdicts, probabilities = zip(
        *judged.filter(stratum__round=newest).order_by("harvested_tuple__rank").values_list(*columns), strict=True
    )
    is_accepted = np.array([verdict == Verdict.ACCEPTED for verdict in verdicts])
    weights = np.array([1 / (probability or 1) for probability in probabilities])
    return Round.objects.get(pk=newest), kept_parts(np.array(scores, dtype=np.float64), is_accepted, weights)


def _out_of_reach(cut: Cut, parts: list[KeptPart], round: Round) -> str:
    surely = cut.kind == "precision-low"
    best = max(parts, key=lambda part: part.low if surely else part.precision)
    bound = "a lower bound of" if surely else "a precision of"
    return f"No part of this harvest reaches {bound} {share(cut.value)}; the best has {_estimate(best, round)}."


def _estimate(part: KeptPart, round: Round) -> str:
    tuples = counted(part.n, "judged tuple")
    source = "" if round.source == Round.Source.PEOPLE else f" ({round.get_source_display()})"
    return f"{share_with_interval(part.precision, part.low, part.high)} from {tuples} of round {round}{source}"
