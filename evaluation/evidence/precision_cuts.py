"""`precision:0.8`: a cut from judgments, made a cut by score (HOOKS of kgharvest.registries, "cut_from_judgments")."""

from __future__ import annotations

from math import floor

from annotation.models import Round
from evaluation.evidence.judged_harvests import judged_harvest
from evaluation.statistics.cut_rates import Cuts, KeptPart, bounded_parts, largest_part, surely_largest_part
from evaluation.statistics.finite_population import EMPTY_STRATUM
from kgharvest.harvests.cuts import BadCut, Cut, ScoreCut
from kgharvest.models import HarvestJob
from kgharvest.pages.number_format import counted, share, share_with_interval


def score_cut(job: HarvestJob, cut: Cut) -> ScoreCut:
    """Return the cut by score that keeps the most tuples at the wanted precision, as the newest judged round sees it.

    Rounds of the harvest's own project count: who sees the harvest need not see what other projects judge of it.
    Raises BadCut if nothing of the job is judged, or if no part of it is as precise.
    """
    harvest = judged_harvest(job, Round.objects.filter(project=job.project_id))
    if harvest is None:
        raise BadCut(f"{cut} needs judgments, and no tuple of {job} (job {job.pk}) has a verdict; judge a round of it.")
    round, cuts = harvest.round, harvest.cuts()
    part = surely_largest_part(bounded_parts(cuts), cut.value) if _surely(cut) else largest_part(cuts, cut.value)
    if part is None:
        raise BadCut(_out_of_reach(cut, cuts, round))
    threshold = floor(part.score * 1000) / 1000  # short enough to be typed again, and not above the score itself
    return ScoreCut(Cut("score", threshold), f"{cut} = score >= {threshold}, estimated {_estimate(part, round)}")


def _surely(cut: Cut) -> bool:
    return cut.kind == "precision-low"


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
