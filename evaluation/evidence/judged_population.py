"""What a judge says of the tuples that strata were drawn from: the groups by which their samples are post-stratified.

Letters of shapes: as in evaluation.evidence.arrays; U tuples that strata were drawn from; 3 groups of judges' labels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from annotation.judges.labels import check_one_judge, judge_labels
from annotation.judges.models import JudgeRun
from annotation.models import Label, Round
from evaluation.evidence.arrays import Evidence
from evaluation.evidence.cells import DrawnVerdicts, ranked_strata
from kgharvest.models import HarvestedTuple, KnowledgeTuple
from kgharvest.statistics.arrays import ACCEPTED, Codes, Flags, Floats
from kgharvest.statistics.cell_rates import UNKNOWN_POPULATION, VerdictSample
from kgharvest.statistics.cut_rates import Cuts, KeptPart, bounded_numbers
from kgharvest.statistics.judge_assisted import (
    CALLED_FALSE,
    CALLED_TRUE,
    GROUPS,
    OTHER,
    PEOPLE_ALONE,
    AssistedRate,
    JudgedSample,
    judge_assisted_rate,
    judge_assisted_share,
    people_alone,
    tells_apart,
)
from kgharvest.statistics.rates import unknown_rate

GROUP_OF_LABEL: Mapping[str, int] = {Label.TRUE: CALLED_TRUE, Label.FALSE: CALLED_FALSE}
N_GROUPS = len(GROUPS)


class JudgedTuples(NamedTuple):
    """group_of_draw (D,). stratum, rank, group, is_labelled (U,): of tuples that are not left out by curation.

    run, model: names of the judge run and its LM. is_labelled: the judge answered, whatever it said. Of a stratum that
    has a tuple without an answer all are OTHER: what people judge is asked about first, so whether there is an answer
    tells what was drawn, and those drawn with one label would stand for themselves alone.
    """

    run: str
    model: str
    group_of_draw: Codes
    stratum: Codes
    rank: Codes
    group: Codes
    is_labelled: Codes


def gather_judged_tuples(round: Round, run: JudgeRun, evidence: Evidence) -> JudgedTuples:
    """Raises SeveralJudges."""
    check_one_judge(run)
    harvests = _harvests(round, judge_labels(run), {stratum.job for stratum in evidence.strata if stratum.job})
    return judged_tuples(run.name, run.model, evidence, harvests)


def judged_tuples(run: str, model: str, evidence: Evidence, harvests: Mapping[int, Codes]) -> JudgedTuples:
    """run, model: names. harvests: by job (4, its tuples), best ranks first: rank, group, and 1 where the judge
    answered, and where curation does not leave the tuple out.
    """
    group_of_draw = np.full(len(evidence.draws.task), OTHER)
    columns = [np.zeros((4, 0), dtype=np.int64)]
    for number, stratum in enumerate(evidence.strata):
        if stratum.job is None:
            continue
        rank, group, is_labelled, is_in_frame = harvests[stratum.job]
        drawn = np.flatnonzero((evidence.draws.stratum == number) & (evidence.draws.rank > 0))
        group_of_draw[drawn] = group[np.searchsorted(rank, evidence.draws.rank[drawn])]
        own = (rank >= (stratum.rank_from or 0)) & (rank <= (stratum.rank_to or 0)) & (is_in_frame > 0)
        if stratum.ranks:  # of a stratum of a judge's labels, which shares its ranks with others
            own &= np.isin(rank, stratum.ranks)
        if not is_labelled[own].all():
            group, group_of_draw[drawn] = np.full(len(rank), OTHER), OTHER
        columns.append(np.array([np.full(len(rank), number), rank, group, is_labelled])[:, own])
    return JudgedTuples(run, model, group_of_draw, *np.concatenate(columns, axis=1))


def _harvests(round: Round, labels: Mapping[int, str], jobs: Collection[int]) -> dict[int, Codes]:
    """Return what `judged_tuples` takes."""
    rows = HarvestedTuple.objects.filter(job__in=jobs).order_by("job", "rank")
    fields = ("job", "rank", "knowledge_tuple", "knowledge_tuple__curation", "knowledge_tuple__is_sensitive")
    columns: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
    for job, rank, tuple_id, curation, is_sensitive in rows.values_list(*fields).iterator():
        is_left_out = curation == KnowledgeTuple.Curation.HIDDEN or (is_sensitive and not round.include_sensitive)
        group = GROUP_OF_LABEL.get(labels.get(tuple_id, ""), OTHER)
        columns[job].append((rank, group, tuple_id in labels, not is_left_out))
    return {job: np.array(own, dtype=np.int64).T for job, own in columns.items()}


class JudgedStrata:
    """The strata of a round by what a judge says, as `kgharvest.statistics.cut_rates.RankedStrata` are without."""

    def __init__(self, evidence: Evidence, drawn: DrawnVerdicts, tuples: JudgedTuples) -> None:
        self.tuples = tuples
        self.ranked = ranked_strata(evidence, drawn)
        draws = evidence.draws
        counted = (draws.rank > 0) & (evidence.population_of_stratum[draws.stratum] > 0)
        accepted = drawn.of_draws(ACCEPTED).at(counted)
        self._most = int(np.concatenate([draws.rank, tuples.rank, self.ranked.last]).max(initial=0)) + 1
        group = draws.stratum[counted] * N_GROUPS + tuples.group_of_draw[counted]
        n_drawn = np.ones(len(group))
        self._drawn = _Cumulated(group * self._most + draws.rank[counted], [n_drawn, *accepted])
        of_all = (tuples.stratum * N_GROUPS + tuples.group) * self._most + tuples.rank
        self._all = _Cumulated(of_all, [np.ones(len(of_all)), tuples.is_labelled.astype(np.float64)])

        sides = evidence.side_of_cell[evidence.cell_of_stratum]
        self._is_heard = np.zeros(len(sides), dtype=bool)
        for side in range(len(evidence.sides)):
            own = np.flatnonzero(sides == side)
            self._is_heard[own] = tells_apart(self.sample(own, self.ranked.last[own]))

    def heard(self, strata: Codes, last_rank: Codes) -> JudgedSample:
        """Return `sample`, but as if the judge had said nothing where it tells nothing of an LM and setting.

        That is asked once of all that was judged of these, so that an average is the mean of its cells.
        """
        sample = self.sample(strata, last_rank)
        alone, is_heard = people_alone(sample), self._is_heard[strata][:, np.newaxis]
        population, drawn = (np.where(is_heard, sample[part], alone[part]) for part in (0, 1))
        accepted = (np.where(is_heard, *both) for both in zip(sample.accepted, alone.accepted, strict=True))
        return JudgedSample(population, drawn, VerdictSample(*accepted))

    def sample(self, strata: Codes, last_rank: Codes) -> JudgedSample:
        """Return what a cut after `last_rank` (S,) takes of `strata` (S,), by what the judge says of it."""
        n_drawn, *accepted = self._up_to(self._drawn, strata, last_rank)
        counted, _ = self._up_to(self._all, strata, last_rank)
        population = self.ranked.parts(strata, last_rank).population
        drawn = n_drawn.astype(np.int64)
        return JudgedSample(_apportioned(counted, population, drawn), drawn, VerdictSample(*accepted))

    def rate(self, strata: Codes, last_rank: Codes, weights: Floats | None = None) -> AssistedRate:
        """Return the share accepted of all that the cuts take together; weights (S,): as of `judge_assisted_rate`."""
        taken, is_taken = self._taken(strata, last_rank)
        if not is_taken.any():
            return AssistedRate(*(unknown_rate(UNKNOWN_POPULATION),) * 2, PEOPLE_ALONE, None)
        return judge_assisted_rate(taken, None if weights is None else weights[is_taken])

    def largest_part(self, cuts: Cuts, target: float) -> KeptPart | None:
        """Return the largest of the cuts whose precision with the judge reaches `target`; None if there is none."""
        for number in reversed(range(len(cuts.share))):
            taken, is_taken = self._taken(cuts.strata, np.full(len(cuts.strata), cuts.last_rank[number]))
            value = judge_assisted_share(taken) if is_taken.any() else None
            if value is not None and value >= target - 1e-9:
                return self.part(cuts, number)
        return None

    def surely_largest_part(self, cuts: Cuts, target: float) -> KeptPart | None:
        """Return the largest of some cuts whose lower limit with the judge reaches `target`; None if there is none."""
        parts = (self.part(cuts, number) for number in reversed(bounded_numbers(cuts)))
        return next((part for part in parts if part.low >= target - 1e-9), None)

    def part(self, cuts: Cuts, number: int) -> KeptPart:
        last_rank = np.full(len(cuts.strata), cuts.last_rank[number])
        value, low, high = self.rate(cuts.strata, last_rank).rate.with_interval or (np.nan, np.nan, np.nan)
        n = int(self.ranked.parts(cuts.strata, last_rank).n.sum())
        return KeptPart(float(cuts.score[number]), value, low, high, n)

    def _taken(self, strata: Codes, last_rank: Codes) -> tuple[JudgedSample, Flags]:
        """Return the sample of the strata of which the cuts take anything, and which these are."""
        sample = self.heard(strata, last_rank)
        is_taken = sample.population.any(axis=1)
        accepted = VerdictSample(*(column[is_taken] for column in sample.accepted))
        return JudgedSample(sample.population[is_taken], sample.drawn[is_taken], accepted), is_taken

    def groups(self) -> tuple[Codes, Codes]:
        """Return the group of each draw (D,), and how many tuples of each stratum are in each group (S, 3)."""
        every_stratum = np.arange(len(self.ranked.last))
        return self.tuples.group_of_draw, self.sample(every_stratum, self.ranked.last).population

    def n_labelled(self, strata: Codes) -> int:
        """Return of how many tuples the judge said anything."""
        _, is_labelled = self._up_to(self._all, strata, self.ranked.last[strata])
        return int(is_labelled.sum())

    def is_labelled(self, strata: Codes) -> bool:
        """Return whether the judge said anything of every tuple."""
        counted, is_labelled = self._up_to(self._all, strata, self.ranked.last[strata])
        return bool(counted.sum() == is_labelled.sum())

    def _up_to(self, cumulated: _Cumulated, strata: Codes, last_rank: Codes) -> Floats:
        """Return the sums of each column (columns, S, 3) over ranks up to `last_rank` (S,)."""
        groups = (strata[:, np.newaxis] * N_GROUPS + np.arange(N_GROUPS)) * self._most  # (S, 3)
        return cumulated.between(groups, groups + np.clip(last_rank, 0, self._most - 1)[:, np.newaxis])


class _Cumulated:
    """Sums of columns over places from one up to another."""

    def __init__(self, place: Codes, columns: list[Floats]) -> None:
        order = np.argsort(place, kind="stable")
        self._place = place[order]
        self._sums = np.zeros((len(columns), len(place) + 1))
        self._sums[:, 1:] = np.cumsum([column[order] for column in columns], axis=1)

    def between(self, first: Codes, last: Codes) -> Floats:
        start, end = np.searchsorted(self._place, first), np.searchsorted(self._place, last, side="right")
        between: Floats = self._sums[:, end] - self._sums[:, start]
        return between


def _apportioned(counted: Floats, population: Codes, drawn: Codes) -> Codes:
    """Return (S, 3) tuples by group that add up to `population` (S,), at least those `drawn` (S, 3).

    What the judge says was `counted` of tuples as curation leaves them now; what was hidden since the draw was part of
    what was drawn from, and counts as the others do (largest remainders).
    """
    apportioned = np.maximum(counted, drawn).astype(np.int64)
    for row in np.flatnonzero(apportioned.sum(axis=1) != population):
        rest, shares = population[row] - drawn[row].sum(), np.maximum(counted[row] - drawn[row], 0)
        wanted = rest * shares / shares.sum() if shares.any() else np.array([0.0, 0.0, float(rest)])
        parts = np.floor(wanted).astype(np.int64)
        parts[np.argsort(parts - wanted, kind="stable")[: rest - parts.sum()]] += 1
        apportioned[row] = drawn[row] + parts
    return apportioned
