"""Overlap of two harvests of a relation: what both found, what one of them found, and how much of it is true."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from annotation.models import Draw, Round
from evaluation.statistics.rankings import Depth, RankCorrelation, jaccard, overlap_by_depth, rank_correlation
from evaluation.statistics.rates import Rate, rate
from kgharvest.models import HarvestedTuple, HarvestJob

MOST_COMPARED = 20_000  # tuples of each harvest, the best
PAIRS_AT_ONCE = 20
PARTS = ("only_a", "both", "only_b")


class PartAccuracy(NamedTuple):
    """Of the tuples of one part that were drawn for these harvests and judged to an end."""

    n_judged: int
    accuracy: Rate
    is_simulated: bool


class PartSizes(NamedTuple):
    only_a: int
    both: int
    only_b: int

    @property
    def jaccard(self) -> float | None:
        return jaccard(self.only_a + self.both, self.only_b + self.both, self.both)


class HarvestOverlap(NamedTuple):
    """ranks_a, ranks_b: of the best tuples of each harvest, by knowledge tuple."""

    a: HarvestJob
    b: HarvestJob
    ranks_a: Mapping[int, int]
    ranks_b: Mapping[int, int]

    @property
    def parts(self) -> dict[str, list[int]]:
        """The knowledge tuples of each part, best first; those of both by the better of their ranks."""
        both = [known for known in self.ranks_a if known in self.ranks_b]
        return {
            "only_a": [known for known in self.ranks_a if known not in self.ranks_b],
            "both": sorted(both, key=lambda known: (min(self.ranks_a[known], self.ranks_b[known]), known)),
            "only_b": [known for known in self.ranks_b if known not in self.ranks_a],
        }

    @property
    def sizes(self) -> PartSizes:
        n_both = len(self.ranks_a.keys() & self.ranks_b.keys())
        return PartSizes(len(self.ranks_a) - n_both, n_both, len(self.ranks_b) - n_both)

    @property
    def jaccard(self) -> float | None:
        return self.sizes.jaccard

    @property
    def correlation(self) -> RankCorrelation:
        shared = list(self.ranks_a.keys() & self.ranks_b.keys())
        return rank_correlation([self.ranks_a[known] for known in shared], [self.ranks_b[known] for known in shared])

    @property
    def depths(self) -> list[Depth]:
        return overlap_by_depth(self.ranks_a, self.ranks_b)

    @property
    def is_cut(self) -> bool:
        return max(self.a.n_tuples, self.b.n_tuples) > MOST_COMPARED


def overlap_of(a: HarvestJob, b: HarvestJob) -> HarvestOverlap:
    """Compare the MOST_COMPARED best tuples of two harvests of one relation."""
    return overlaps_of([(a, b)])[0]


def overlaps_of(pairs: Sequence[tuple[HarvestJob, HarvestJob]]) -> list[HarvestOverlap]:
    """Compare the two harvests of each pair as `overlap_of` does, all with one query."""
    ranks: dict[int, dict[int, int]] = {job.pk: {} for pair in pairs for job in pair}
    best = HarvestedTuple.objects.filter(job__in=ranks, rank__lte=MOST_COMPARED).order_by("job_id", "rank")
    for job, known, rank in best.values_list("job", "knowledge_tuple", "rank").iterator():
        ranks[job][known] = rank
    return [HarvestOverlap(a, b, ranks[a.pk], ranks[b.pk]) for a, b in pairs]


def accuracy_of_parts(overlap: HarvestOverlap, user) -> dict[str, PartAccuracy]:
    """Return the accuracy of each part from the rounds that `user` may see.

    A part of A alone rests on what was drawn for A, of B alone on what was drawn for B, what both have on either: a
    part of a simple random sample is one of the part. Of several verdicts on a tuple the last counts.
    """
    verdicts = _verdicts([overlap.a, overlap.b], user)
    return {part: _accuracy(known, verdicts) for part, known in overlap.parts.items()}


def _verdicts(jobs: Iterable[HarvestJob], user) -> dict[int, tuple[str, bool]]:
    """Return verdict and whether it is simulated, by knowledge tuple, of what was drawn for the jobs."""
    drawn = Draw.objects.filter(stratum__job__in=jobs, stratum__round__in=Round.objects.visible_to(user))
    judged = drawn.exclude(task__verdict="").order_by("task")
    columns = ("task__knowledge_tuple", "task__verdict", "stratum__round__source")
    simulated = Round.Source.SIMULATED
    return {known: (verdict, source == simulated) for known, verdict, source in judged.values_list(*columns)}


def _accuracy(part: Iterable[int], verdicts: Mapping[int, tuple[str, bool]]) -> PartAccuracy:
    judged = [verdicts[known] for known in part if known in verdicts]
    n_accepted = sum(verdict == "accepted" for verdict, _ in judged)
    return PartAccuracy(len(judged), rate(n_accepted, len(judged)), any(is_simulated for _, is_simulated in judged))


# -- all relations of a set --------------------------------------------------------------------------------------------


def pairs_of_set(a: HarvestJob, b: HarvestJob) -> list[tuple[HarvestJob, HarvestJob]]:
    """Return the newest harvests of the cells of `a` and `b`, for each relation of their set where both have tuples."""
    of_a, of_b = _newest_by_relation(a), _newest_by_relation(b)
    shared = sorted(of_a.keys() & of_b.keys(), key=lambda relation: of_a[relation].relation.name)
    return [(of_a[relation], of_b[relation]) for relation in shared]


def _newest_by_relation(job: HarvestJob) -> dict[int, HarvestJob]:
    cell = {"language_model": job.language_model, "setting": job.setting}
    jobs = HarvestJob.objects.with_cell().succeeded().defer("payload", "summary")
    harvests = jobs.filter(relation__relation_set=job.relation.relation_set, n_tuples__gt=0, **cell).order_by("pk")
    return {harvest.relation_id: harvest for harvest in harvests}


class SetTotals(NamedTuple):
    """Over the relations of a set. pooled: their tuples taken together, so that long harvests count for more.

    The means count each relation once: of Jaccard's index, and of the correlations in the n_correlated relations that
    have one; None without any.
    """

    n_relations: int
    pooled: PartSizes
    mean_jaccard: float | None
    n_correlated: int
    mean_spearman: float | None
    mean_kendall: float | None


def totals_of(pairs: Sequence[tuple[HarvestJob, HarvestJob]]) -> SetTotals:
    """Compare all pairs, no more than PAIRS_AT_ONCE of which are in memory."""
    starts = range(0, len(pairs), PAIRS_AT_ONCE)
    overlaps = (overlap for start in starts for overlap in overlaps_of(pairs[start : start + PAIRS_AT_ONCE]))
    compared = [(overlap.sizes, overlap.correlation) for overlap in overlaps]
    correlations = [correlation for _, correlation in compared if correlation.spearman is not None]
    return SetTotals(
        n_relations=len(compared),
        pooled=PartSizes(*(sum(part) for part in zip(*(sizes for sizes, _ in compared), strict=True))),
        mean_jaccard=_mean([sizes.jaccard for sizes, _ in compared]),
        n_correlated=len(correlations),
        mean_spearman=_mean([correlation.spearman for correlation in correlations]),
        mean_kendall=_mean([correlation.kendall for correlation in correlations]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
