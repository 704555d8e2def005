"""Accuracy of parts and cuts of a harvest, estimated from the newest judged round that sampled the harvest."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from operator import attrgetter

import numpy as np
from django.db.models import QuerySet

from annotation.judging.verdicts import Verdict
from annotation.models import Draw, Round, Stratum
from evaluation.evidence.evidence import DrawnVerdicts, drawn_verdicts, evidence_of_rows, members_of, patterns_of
from evaluation.evidence.judges import JudgedStrata, judged_tuples_of_rows
from evaluation.evidence.rows import rows_of_round, rules_of_round
from kgharvest.harvests.cuts import BadCut, Cut, ScoreCut
from kgharvest.models import HarvestJob
from kgharvest.pages.number_format import counted, share, share_with_interval
from kgharvest.statistics.arrays import Codes, Flags, Floats
from kgharvest.statistics.rates import (
    EMPTY_STRATUM,
    NOTHING_COUNTED,
    Cuts,
    KeptPart,
    RankedStrata,
    Rate,
    VerdictSample,
    bounded_parts,
    largest_part,
    sample_rate,
    score_cuts,
    surely_largest_part,
)


@dataclass(frozen=True)
class JudgedHarvest:
    """A harvest as sampled by one round. Array shapes use the letters of evaluation.evidence.evidence.

    ranked: the strata. stratum, rank, score, knowledge_tuple, has_verdict (D,): values of the draws. accepted: evidence
    for the verdict ACCEPTED, by draw.
    """

    round: Round
    ranked: RankedStrata
    stratum: Codes
    rank: Codes
    score: Floats
    knowledge_tuple: Codes
    accepted: VerdictSample
    has_verdict: Flags

    def cuts(self) -> Cuts:
        """Return one cut at the score of each judged tuple."""
        judged = self.accepted.n > 0
        return score_cuts(self.ranked, np.arange(len(self.ranked.first)), self.rank[judged], self.score[judged])

    def part(self, ranks: Mapping[int, int]) -> tuple[int, Rate]:
        """Return the number of judged draws in a part of the harvest, and the accuracy of the part.

        `ranks` maps the ids of the part's tuples to their ranks. Within each stratum, the draws in the part are a
        simple random sample of the stratum's tuples in the part. Hidden tuples of a stratum are assumed to be evenly
        distributed over its ranks.
        """
        is_in = np.isin(self.knowledge_tuple, list(ranks))
        in_order = np.sort(np.fromiter(ranks.values(), dtype=np.int64, count=len(ranks)))
        first, last, size = self.ranked.first, self.ranked.last, self.ranked.population
        n_ranks = np.searchsorted(in_order, last, side="right") - np.searchsorted(in_order, first)
        n_inside, n_outside = (np.bincount(self.stratum[side], minlength=len(first)) for side in (is_in, ~is_in))
        expected = np.rint(n_ranks * (size / (last - first + 1)))
        if self.ranked.members is not None:
            expected = self.ranked.members.n_among(np.arange(len(first)), in_order, expected)
        population = np.clip(expected, n_inside, np.maximum(size - n_outside, n_inside)).astype(np.int64)
        sample = self.accepted.at(is_in).summed(self.stratum[is_in], len(first))
        is_taken = population > 0
        if not sample.n.any():
            return 0, Rate(reason=NOTHING_COUNTED)
        sample = sample.effective(self.ranked.effects(is_in, population))
        return int(np.count_nonzero(self.has_verdict[is_in])), sample_rate(sample.at(is_taken), population[is_taken])


def judged_harvest(job: HarvestJob, rounds: QuerySet[Round]) -> JudgedHarvest | None:
    """Return the harvest as sampled by the newest of `rounds` that has judgments of its tuples, or None."""
    draws = Draw.objects.filter(stratum__job=job, harvested_tuple__job=job)
    judged = draws.filter(task__n_judgments__gt=0)
    newest_first = rounds.filter(strata__job=job).distinct().order_by("-pk")
    round = next((round for round in newest_first if judged.filter(stratum__round=round).exists()), None)
    if round is None:
        return None
    strata = list(Stratum.objects.sampled().filter(round=round, job=job).order_by("pk"))
    fields = attrgetter("ranks", "pk", "rank_from", "rank_to", "population")
    ranks, *numbers = zip(*map(fields, strata), strict=True)
    keys, *ranges = map(np.array, numbers)
    labels = (f"task__{name}" for name in ("n_true", "n_false", "n_unjudgeable", "n_wanted", "verdict"))
    of_tuple = ("harvested_tuple__rank", "harvested_tuple__score", "task__knowledge_tuple")
    columns = ("stratum", *of_tuple, "cluster", *labels)
    rows = draws.filter(stratum__round=round).order_by("harvested_tuple__rank").values_list(*columns)
    stratum, rank, score, knowledge_tuple, cluster, *counts, n_wanted, verdict = map(np.array, zip(*rows, strict=True))
    number = np.searchsorted(keys, stratum)
    patterns = patterns_of(np.column_stack(counts), np.maximum(n_wanted, round.least_k))
    drawn = DrawnVerdicts(len(keys), (number, np.arange(len(number))), patterns, round.quorum)
    accepted, has_verdict = drawn.accepted, verdict != ""
    clusters = (cluster.astype(np.int64), verdict == Verdict.ACCEPTED) if round.cluster_size else None
    ranked = RankedStrata(*ranges, (number, rank, accepted, has_verdict), members_of(ranks), clusters)
    return JudgedHarvest(round, ranked, number, rank, score.astype(np.float64), knowledge_tuple, accepted, has_verdict)


# Cuts by precision


def score_cut(job: HarvestJob, cut: Cut) -> ScoreCut:
    """Return the score cut that keeps the most tuples at the target precision, according to the newest judged round.

    Only rounds of the harvest's project are used, because judgments of other projects are private. Raises BadCut if the
    job has no judgments or no part reaches the precision.
    """
    harvest = judged_harvest(job, Round.objects.filter(project=job.project_id))
    if harvest is None:
        raise BadCut(
            f"{cut} requires judgments, but no tuple of {job} (job {job.pk}) has a verdict. Judge tuples of this "
            "harvest first."
        )
    round = harvest.round
    if cut.judge:
        return _cut_with_judge(job, cut, round)
    cuts = harvest.cuts()
    find = surely_largest_part if cut.kind == "precision-low" else largest_part
    part = find(cuts, cut.value)
    if part is None:
        raise BadCut(_out_of_reach(cut, cuts, round))
    return _score_cut(cut, part, round)


def _cut_with_judge(job: HarvestJob, cut: Cut, round: Round) -> ScoreCut:
    """Return the cut, estimated from verdicts of the round and labels of its judge. Raises BadCut or SeveralJudges."""
    run = round.judge_runs.filter(name=cut.judge).first()
    if run is None:
        raise BadCut(
            f"{cut}: round {round.name} has no judge run {cut.judge!r}. Choose a run listed on the round's page."
        )
    rows = rows_of_round(round, run)
    evidence = evidence_of_rows(rows, rules_of_round(round))
    drawn = drawn_verdicts(evidence)
    judged = JudgedStrata(evidence, drawn, judged_tuples_of_rows(rows, evidence))
    strata = np.flatnonzero([stratum.job == job.pk for stratum in evidence.strata])
    draws, has_label = evidence.draws, drawn.accepted.n > 0
    chosen = has_label & np.isin(draws.stratum, strata) & (draws.rank > 0)
    cuts = score_cuts(judged.ranked, strata, draws.rank[chosen], draws.score[chosen])
    part = (judged.surely_largest_part if cut.kind == "precision-low" else judged.largest_part)(cuts, cut.value)
    if part is None:
        raise BadCut(f"No part of this harvest reaches {cut} with this judge and the verdicts of round {round}.")
    part_cut = _score_cut(cut, part, round)
    return part_cut._replace(sentence=f"{part_cut.sentence}, with the judge {run}")


def _score_cut(cut: Cut, part: KeptPart, round: Round) -> ScoreCut:
    threshold = floor(part.score * 1000) / 1000  # rounded down to three decimals, so that it can be retyped
    return ScoreCut(Cut("score", threshold), f"{cut} = score >= {threshold}, estimated {_estimate(part, round)}")


def _out_of_reach(cut: Cut, cuts: Cuts, round: Round) -> str:
    is_bound = cut.kind == "precision-low"
    start = f"No part of this harvest reaches {'a lower bound' if is_bound else 'a precision'} of {share(cut.value)}"
    if not len(cuts.share):
        return f"{start}: {EMPTY_STRATUM}"
    parts = bounded_parts(cuts) if is_bound else [cuts.part(int(cuts.share.argmax()))]
    best = max(parts, key=lambda part: part.low)
    return f"{start}; the best part has {_estimate(best, round)}."


def _estimate(part: KeptPart, round: Round) -> str:
    tuples = counted(part.n, "judged tuple")
    source = "" if round.source == Round.Source.PEOPLE else f" ({round.get_source_display()})"
    return f"{share_with_interval(part.precision, part.low, part.high)} from {tuples} of round {round}{source}"
