"""Cuts of ranked harvests: accuracy of the top-ranked tuples, and the largest cut that reaches a precision.

A cut takes a part of each stratum, and the judged draws up to its rank are a simple sample of that part. The rate of
the top R tuples is therefore a `population_rate` over these parts; that of all tuples is the rate of the cell.
"""

from typing import NamedTuple

import numpy as np

from kgharvest.statistics.arrays import Codes, Flags, Floats
from kgharvest.statistics.rates import NOTHING_COUNTED, Rate, VerdictSample, sample_rate

MOST_BOUNDS = 200  # maximum number of computed intervals; thousands would take minutes


class Parts(NamedTuple):
    """Parts of strata (..., S) in a cut: tuples, draws with a verdict, and evidence of all draws."""

    population: Codes
    n: Codes
    accepted: VerdictSample


class Members:
    """Tuples of strata with ranks interleaved with other strata: `stratum` and `rank` (M,)."""

    def __init__(self, stratum: Codes, rank: Codes) -> None:
        self._most = int(rank.max(initial=0)) + 1
        self._place = np.sort(stratum * self._most + rank)

    def n_up_to(self, strata: Codes, last_rank: Codes, otherwise: Floats) -> Floats:
        """Return the numbers of members with rank <= `last_rank` (..., S); `otherwise` for strata without members."""
        start, whole = (np.searchsorted(self._place, (strata + step) * self._most) for step in (0, 1))
        end = np.searchsorted(self._place, strata * self._most + np.clip(last_rank, 0, self._most - 1), side="right")
        n_up_to: Floats = np.where(whole > start, end - start, otherwise)
        return n_up_to

    def n_among(self, strata: Codes, ranks: Codes, otherwise: Floats) -> Floats:
        """Return the numbers of members of `strata` (S,) with a rank in `ranks` (R,); `otherwise` (S,) without any."""
        n = np.bincount(self._place[np.isin(self._place % self._most, ranks)] // self._most, minlength=strata.max() + 1)
        whole = np.bincount(self._place // self._most, minlength=strata.max() + 1)
        n_among: Floats = np.where(whole[strata] > 0, n[strata], otherwise)
        return n_among


class RankedStrata:
    """Strata of ranks `first` to `last` (S,) with `population` tuples, and all their draws (D,), judged or not.

    Hidden tuples leave fewer tuples than ranks. The remaining ones count as evenly spread over the ranks, except in
    strata with `members`, whose ranks are known.
    """

    def __init__(
        self,
        first: Codes,
        last: Codes,
        population: Codes,
        draws: tuple[Codes, Codes, VerdictSample, Flags],
        members: Members | None = None,
    ) -> None:
        """draws: stratum, rank from 1, evidence of acceptance, and if it has a verdict."""
        self.first, self.last, self.population = first, last, population
        stratum, rank, accepted, has_verdict = draws
        self._most = int(max(rank.max(initial=0), last.max(initial=0))) + 1
        place = stratum * self._most + rank
        order = np.argsort(place, kind="stable")
        self._place = place[order]
        # Cumulative sums before each draw: draws, draws with a verdict, evidence.
        self._sums = np.zeros((2 + len(accepted), len(order) + 1))
        columns = [np.ones(len(order)), has_verdict[order], *accepted.at(order)]
        self._sums[:, 1:] = np.cumsum(columns, axis=1)
        self._members = members

    def parts(self, strata: Codes, last_rank: Codes) -> Parts:
        """Return the parts of `strata` (S,) in a cut after `last_rank` (..., S)."""
        start, whole = (np.searchsorted(self._place, (strata + step) * self._most) for step in (0, 1))
        end = np.searchsorted(self._place, strata * self._most + np.clip(last_rank, 0, self._most - 1), side="right")
        drawn, n, *accepted = (sums[end] - sums[start] for sums in self._sums)
        first, last, size = self.first[strata], self.last[strata], self.population[strata]
        share = np.clip((last_rank - first + 1) / (last - first + 1), 0, 1)
        below = self._sums[0][whole] - self._sums[0][end]  # drawn below the cut
        expected = np.rint(share * size)
        if self._members is not None:
            expected = self._members.n_up_to(strata, last_rank, expected)
        population = np.clip(expected, drawn, np.maximum(size - below, drawn)).astype(np.int64)
        return Parts(population, n.astype(np.int64), VerdictSample(*accepted))

    def rate(self, strata: Codes, last_rank: Codes) -> tuple[Rate, Parts]:
        """Return the accuracy of the union of cuts after `last_rank` (S,) of `strata` (S,)."""
        parts = self.parts(strata, last_rank)
        is_taken = parts.population > 0
        if not is_taken.any():
            return Rate(reason=NOTHING_COUNTED), parts
        return sample_rate(parts.accepted.at(is_taken), parts.population[is_taken]), parts

    def shares(self, strata: Codes, last_ranks: Codes) -> Floats:
        """Return (K,) values of `rate` for cuts of all `strata` after one rank each; NaN if undefined."""
        population, _, sample = self.parts(strata, last_ranks[:, None])  # (K, S)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(sample.n > 0.5, sample.n_hits / sample.n, np.nan)  # consistent with population_rate
            accepted = np.where(population > 0, population * share, 0).sum(axis=1)
            shares: Floats = accepted / population.sum(axis=1)
        return shares


class KeptPart(NamedTuple):
    """Precision of the tuples with a score >= `score`, with a 95 % interval from the n judged ones."""

    score: float
    precision: float
    low: float
    high: float
    n: int


class Cuts(NamedTuple):
    """Cuts of one harvest at the scores of judged tuples, best first. last_rank, score, share: (K,)."""

    ranked: RankedStrata
    strata: Codes
    last_rank: Codes
    score: Floats
    share: Floats

    def part(self, number: int) -> KeptPart:
        rate, parts = self.ranked.rate(self.strata, np.full(len(self.strata), self.last_rank[number]))
        value, low, high = rate.with_interval or (np.nan, np.nan, np.nan)
        return KeptPart(float(self.score[number]), value, low, high, int(parts.n.sum()))


def score_cuts(ranked: RankedStrata, strata: Codes, rank: Codes, score: Floats) -> Cuts:
    """Return the cuts at the scores of judged tuples with `rank` and `score` (D,), drawn from some of `strata`.

    Omits cuts through a stratum without a verdict.
    """
    order = np.argsort(-score, kind="stable")
    scores, last_rank = score[order], np.maximum.accumulate(rank[order])
    ends = np.flatnonzero(np.append(np.diff(scores) != 0, True)) if len(scores) else np.zeros(0, dtype=np.int64)
    shares = ranked.shares(strata, last_rank[ends])
    known = ~np.isnan(shares)
    return Cuts(ranked, strata, last_rank[ends][known], scores[ends][known], shares[known])


def largest_part(cuts: Cuts, target: float) -> KeptPart | None:
    """Return the largest part with a precision of at least `target`, or None."""
    reached = np.flatnonzero(cuts.share >= target - 1e-9)
    return cuts.part(int(reached[-1])) if len(reached) else None


def bounded_parts(cuts: Cuts) -> list[KeptPart]:
    """Return the parts of `bounded_numbers`, in ascending size."""
    return [cuts.part(number) for number in bounded_numbers(cuts)]


def bounded_numbers(cuts: Cuts) -> list[int]:
    """Return the numbers of at most MOST_BOUNDS evenly spaced cuts."""
    numbers = np.linspace(0, len(cuts.share) - 1, min(len(cuts.share), MOST_BOUNDS)).astype(np.int64)
    return list(np.unique(numbers).tolist())


def surely_largest_part(parts: list[KeptPart], target: float) -> KeptPart | None:
    """Return the largest part with a lower limit of at least `target`, or None."""
    reached = [part for part in parts if part.low >= target - 1e-9]
    return reached[-1] if reached else None
