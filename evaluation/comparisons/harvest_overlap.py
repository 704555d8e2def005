"""Overlap of two harvests of a relation: shared and exclusive tuples, and their accuracy."""

from collections.abc import Iterable, Mapping, Sequence, Set
from statistics import fmean
from typing import NamedTuple

from annotation.models import Round
from evaluation.evidence.judged_harvests import JudgedHarvest, judged_harvest
from evaluation.scores.rankings import Depth, RankCorrelation, jaccard, overlap_by_depth, rank_correlation
from kgharvest.models import HarvestedTuple, HarvestJob
from kgharvest.statistics.rates import NOTHING_COUNTED, Rate

MOST_COMPARED = 20_000  # maximum number of tuples from each harvest, best first
PAIRS_AT_ONCE = 20
PARTS = ("only_a", "both", "only_b")


class PartAccuracy(NamedTuple):
    """Accuracy of the tuples in one part of the overlap. n_judged: number of judged tuples."""

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
    """Two harvests to compare.

    `ranks_a` and `ranks_b` map the ids of the best tuples in each harvest to their ranks.
    """

    a: HarvestJob
    b: HarvestJob
    ranks_a: Mapping[int, int]
    ranks_b: Mapping[int, int]

    @property
    def parts(self) -> dict[str, list[int]]:
        """Tuple ids by part of the overlap, best first. Shared tuples are ordered by the better of their two ranks."""
        both = self.ranks_a.keys() & self.ranks_b.keys()
        return {
            "only_a": [pk for pk in self.ranks_a if pk not in both],
            "both": sorted(both, key=lambda pk: (min(self.ranks_a[pk], self.ranks_b[pk]), pk)),
            "only_b": [pk for pk in self.ranks_b if pk not in both],
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
        return rank_correlation([self.ranks_a[pk] for pk in shared], [self.ranks_b[pk] for pk in shared])

    @property
    def depths(self) -> list[Depth]:
        return overlap_by_depth(self.ranks_a, self.ranks_b)

    @property
    def is_cut(self) -> bool:
        return max(self.a.n_tuples, self.b.n_tuples) > MOST_COMPARED


def overlap_of(a: HarvestJob, b: HarvestJob) -> HarvestOverlap:
    """Compare the best MOST_COMPARED tuples of two harvests of one relation."""
    return overlaps_of([(a, b)])[0]


def overlaps_of(pairs: Sequence[tuple[HarvestJob, HarvestJob]]) -> list[HarvestOverlap]:
    """Compare the harvests of each pair as `overlap_of` does, with a single query."""
    ranks: dict[int, dict[int, int]] = {job.pk: {} for pair in pairs for job in pair}
    best = HarvestedTuple.objects.filter(job__in=ranks, rank__lte=MOST_COMPARED).order_by("job_id", "rank")
    for job, knowledge_tuple, rank in best.values_list("job", "knowledge_tuple", "rank").iterator():
        ranks[job][knowledge_tuple] = rank
    return [HarvestOverlap(a, b, ranks[a.pk], ranks[b.pk]) for a, b in pairs]


def accuracy_of_parts(overlap: HarvestOverlap, user) -> dict[str, PartAccuracy]:
    """Return the accuracy of each part, estimated as for cells in reports, from rounds visible to `user`.

    For tuples found only by A, the estimate uses the sample that the newest judged round drew from A, and likewise for
    B. For shared tuples, it uses the sample that contains more judged shared tuples.
    """
    rounds = Round.objects.visible_to(user)
    judged_a, judged_b = judged_harvest(overlap.a, rounds), judged_harvest(overlap.b, rounds)
    sides = {"only_a": ((judged_a, overlap.ranks_a),), "only_b": ((judged_b, overlap.ranks_b),)}
    sides["both"] = sides["only_a"] + sides["only_b"]
    return {part: _accuracy(set(tuples), sides[part]) for part, tuples in overlap.parts.items()}


def _accuracy(part: Set[int], sides: Iterable[tuple[JudgedHarvest | None, Mapping[int, int]]]) -> PartAccuracy:
    best = PartAccuracy(0, Rate(reason=NOTHING_COUNTED), False)
    for harvest, ranks in sides:
        if harvest is not None:
            n_judged, accuracy = harvest.part({pk: rank for pk, rank in ranks.items() if pk in part})
            if n_judged > best.n_judged:
                best = PartAccuracy(n_judged, accuracy, harvest.round.source == Round.Source.SIMULATED)
    return best


# Relation sets


def pairs_of_set(a: HarvestJob, b: HarvestJob, user) -> list[tuple[HarvestJob, HarvestJob]]:
    """For each relation with tuples in the cells of both `a` and `b`, return the newest harvest of each cell.

    user: the harvests must be visible to this user. If None, all harvests are used.
    """
    jobs_a, jobs_b = _newest_by_relation(a, user), _newest_by_relation(b, user)
    shared = sorted(jobs_a.keys() & jobs_b.keys(), key=lambda relation: jobs_a[relation].relation.name)
    return [(jobs_a[relation], jobs_b[relation]) for relation in shared]


def _newest_by_relation(job: HarvestJob, user) -> dict[int, HarvestJob]:
    cell = {"language_model": job.language_model, "setting": job.setting}
    jobs = HarvestJob.objects.visible_to(user).with_cell().succeeded().defer("payload", "summary")
    harvests = jobs.filter(relation__relation_set=job.relation.relation_set, n_tuples__gt=0, **cell).order_by("pk")
    return {harvest.relation_id: harvest for harvest in harvests}


class SetTotals(NamedTuple):
    """Totals over the relations of a set. `pooled` contains sums of part sizes, so longer harvests have more weight.

    All means give each relation the same weight. Correlations are averaged over the `n_correlated` relations in which
    they are defined. A mean over no relations is None.
    """

    n_relations: int
    pooled: PartSizes
    mean_jaccard: float | None
    n_correlated: int
    mean_spearman: float | None
    mean_kendall: float | None


def totals_of(pairs: Sequence[tuple[HarvestJob, HarvestJob]]) -> SetTotals:
    """Return the totals of all pairs, loading at most PAIRS_AT_ONCE pairs at a time."""
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
