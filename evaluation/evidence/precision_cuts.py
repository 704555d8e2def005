"""`precision:0.8`: a cut from judgments, made a cut by score (HOOKS of kgharvest.registries, "cut_from_judgments")."""

from __future__ import annotations

from math import floor

import numpy as np

from annotation.models import Round
from evaluation.evidence.cells import drawn_verdicts
from evaluation.evidence.judged_harvests import judged_harvest
from evaluation.evidence.judged_population import JudgedStrata, gather_judged_tuples
from evaluation.evidence.queries import gather_evidence
from kgharvest.harvests.cuts import BadCut, Cut, ScoreCut
from kgharvest.models import HarvestJob
from kgharvest.pages.number_format import counted, share, share_with_interval
from kgharvest.statistics.arrays import ACCEPTED
from kgharvest.statistics.cell_rates import EMPTY_STRATUM
from kgharvest.statistics.cut_rates import (
    Cuts,
    KeptPart,
    bounded_parts,
    largest_part,
    score_cuts,
    surely_largest_part,
)


def score_cut(job: HarvestJob, cut: Cut) -> ScoreCut:
    """Return the cut by score that keeps the most tuples at the wanted precision, as the newest judged round sees it.

    Rounds of the harvest's own project count: who sees the harvest need not see what other projects judge of it.
    Raises BadCut if nothing of the job is judged, or if no part of it is as precise.
    """
    harvest = judged_harvest(job, Round.objects.filter(project=job.project_id))
    if harvest is None:
        raise BadCut(f"{cut} needs judgments, and no tuple of {job} (job {job.pk}) has a verdict; judge a round of it.")
    round = harvest.round
    if cut.judge:
        return _cut_with_judge(job, cut, round)
    cuts = harvest.cuts()
    part = surely_largest_part(bounded_parts(cuts), cut.value) if _surely(cut) else largest_part(cuts, cut.value)
    if part is None:
        raise BadCut(_out_of_reach(cut, cuts, round))
    return _score_cut(cut, part, round)


def _cut_with_judge(job: HarvestJob, cut: Cut, round: Round) -> ScoreCut:
    """Return the cut by the verdicts of the round and the labels of its judge run. Raises BadCut, SeveralJudges."""
    run = round.judge_runs.filter(name=cut.judge).first()
    if run is None:
        raise BadCut(f"{cut}: the round {round.name} has no judge run {cut.judge!r}; name one of its page.")
    evidence = gather_evidence(round)
    drawn = drawn_verdicts(evidence)
    judged = JudgedStrata(evidence, drawn, gather_judged_tuples(round, run, evidence))
    strata = np.flatnonzero([stratum.job == job.pk for stratum in evidence.strata])
    draws, has_label = evidence.draws, drawn.of_draws(ACCEPTED).n > 0
    chosen = has_label & np.isin(draws.stratum, strata) & (draws.rank > 0)
    cuts = score_cuts(judged.ranked, strata, draws.rank[chosen], draws.score[chosen])
    part = (judged.surely_largest_part if _surely(cut) else judged.largest_part)(cuts, cut.value)
    if part is None:
        raise BadCut(f"No part of this harvest reaches {cut} by the verdicts of round {round} and this judge.")
    found = _score_cut(cut, part, round)
    return found._replace(sentence=f"{found.sentence}, with the judge {run}")


def _score_cut(cut: Cut, part: KeptPart, round: Round) -> ScoreCut:
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
