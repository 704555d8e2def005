"""Verdict rules, and expected verdicts of incomplete statements.

A rule maps counts of labels (T, 3) to verdict codes (T,).

Missing judgments can depend on earlier labels. For example, if a third annotator is asked only after a disagreement,
disputed statements stay incomplete longest. If an annotator who always says True is excluded, statements that others
called False stay complete. Discarding incomplete statements would therefore bias every rate. Instead, an incomplete
statement counts with the probability of each verdict, given its labels. This assumes that judgments are exchangeable
and missing at random (Little and Rubin 2002, section 1.3). Shares of complete patterns are fitted by EM (Dempster,
Laird, and Rubin 1977). If the labels do not identify the share of a verdict, bounds on the share are computed from
certain and possible verdicts (Manski 1989).

Letters in array shapes: G groups of statements (strata), P patterns of labels, F full patterns of k labels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np
import scipy

from kgharvest.statistics.arrays import (
    ACCEPTED,
    FALSE,
    REJECTED,
    TRUE,
    UNDECIDED,
    UNJUDGEABLE,
    Codes,
    Counts,
    Flags,
    Floats,
)
from kgharvest.statistics.rates import VerdictSample

Number = int | Codes
IMPORTED_QUORUM = 2  # imported statements have no fixed k, so a statement with a single judgment is undecided


def is_majority(n: Number, n_judgments: Number, quorum: int) -> Any:
    """Return True if `n` is more than half of `n_judgments`, which include Unjudgeable, and at least `quorum`.

    This is the verdict rule, for integers and arrays. annotation.judging.verdicts implements it in SQL.
    """
    return (2 * n > n_judgments) & (n >= quorum)


def majority(counts: Codes, quorum: int = 1) -> Codes:
    n_judgments = counts.sum(axis=1)
    decided = [is_majority(counts[:, label], n_judgments, quorum) for label in (TRUE, FALSE)]
    return np.select(decided, [ACCEPTED, REJECTED], UNDECIDED)


def unanimous(counts: Codes, quorum: int = 1) -> Codes:
    n_judgments = counts.sum(axis=1)
    decided = [(counts[:, label] == n_judgments) & (n_judgments >= quorum) for label in (TRUE, FALSE)]
    return np.select(decided, [ACCEPTED, REJECTED], UNDECIDED)


def unjudgeable_as_false(counts: Codes, quorum: int = 1) -> Codes:
    moved = np.stack(
        [counts[:, TRUE], counts[:, FALSE] + counts[:, UNJUDGEABLE], np.zeros_like(counts[:, TRUE])], axis=1
    )
    return majority(moved, quorum)


# Incomplete statements


# Function that takes labels (F, 3) and a quorum and returns verdicts (F,).
VerdictRule = Callable[[Counts, int], Counts]

MOST_STEPS, TOLERANCE = 2000, 1e-9
BOUNDARY = 1e-10  # smaller shares count as 0; a share that EM moves to 0 still affects the information
SINGULAR, IDENTIFIED = 1e-9, 1e-4  # rcond of the least-squares solution, and the maximum error of the equations
LEAST_INFORMATION = 0.1  # if the information is lower, the share is bounded instead of estimated
MOST_WANTED = 20  # maximum number of required labels; if more are required, the existing labels decide


class CompletedVerdicts:
    """Verdicts (accepted, rejected, undecided) of complete and incomplete statements by group and pattern.

    counts (P, 3): numbers of True, False, and Unjudgeable in each pattern. wanted (P,): number of labels required for a
    verdict; at least the number of existing labels. n_tasks (G, P): number of statements by group and pattern.
    Statements without labels are ignored. certain (P, 3): 1 for the verdict that the pattern has for any missing
    labels. possible (P, 3): 1 for possible verdicts. probability (G, P, 3): probability of each verdict; 0 for a
    pattern without labels. has_verdict (G,): True if a statement of the group has a certain verdict.
    """

    def __init__(
        self, counts: Counts, wanted: Counts, n_tasks: Counts, quorum: int = 1, rule: VerdictRule = majority
    ) -> None:
        n_labels = counts.sum(axis=1)
        wanted = np.where(wanted > MOST_WANTED, n_labels, wanted)
        self.n_tasks: Counts = np.where(n_labels > 0, n_tasks, 0)
        self.certain = np.where((n_labels > 0)[:, None], np.eye(3)[rule(counts, quorum)], 0.0)
        self.possible = self.certain.copy()
        self._fitted: list[_Fitted] = []
        for k in np.unique(wanted[(n_labels > 0) & (n_labels < wanted)]).tolist():
            pattern = np.flatnonzero((n_labels > 0) & (wanted == k))
            labels = _Labels(counts[pattern], k, quorum, rule)
            self.certain[pattern], self.possible[pattern] = labels.certain, labels.possible
            group = np.flatnonzero(self.n_tasks[:, pattern] @ ~labels.is_certain)
            shares = fit_shares(labels.likelihood, self.n_tasks[np.ix_(group, pattern)])
            self._fitted.append(_Fitted(group, pattern, labels, shares))
        self.probability: Floats = np.repeat(self.certain[None], len(n_tasks), axis=0)
        for group, pattern, labels, shares in self._fitted:
            with np.errstate(divide="ignore", invalid="ignore"):
                by_verdict = [shares * column @ labels.likelihood.T for column in labels.verdict.T]
                posterior = np.stack(by_verdict, axis=2) / np.sum(by_verdict, axis=0)[..., None]
            posterior[:, labels.is_certain] = labels.certain[labels.is_certain]
            # A pattern that is absent from the group can have probability 0.
            self.probability[np.ix_(group, pattern)] = np.nan_to_num(posterior)
        self.has_verdict: Flags = (self.n_tasks @ self.certain).sum(axis=1) > 0

    @cached_property
    def _told(self) -> Floats:
        """Return the information of a labeled relative to a complete statement (G, 3), in [0, 1].

        It is 0 if too low.
        """
        lost = np.zeros((len(self.n_tasks), 3))  # information lost because of missing labels, in complete statements
        for group, pattern, labels, shares in self._fitted:
            n_of_k = self.n_tasks[np.ix_(group, pattern)]
            # (G, 3): the variance of a verdict's share with complete labels, divided by the variance with these labels
            information = np.array([
                [_information(labels.likelihood[n > 0], n[n > 0], share, verdict) for verdict in labels.verdict.T]
                for n, share in zip(n_of_k, shares, strict=True)
            ]).reshape(-1, 3)  # fmt: skip
            with np.errstate(divide="ignore"):
                lost[group] += n_of_k.sum(axis=1)[:, None] * (1 / information - 1)
        n_seen = self.n_tasks.sum(axis=1)[:, None]
        told = n_seen / np.maximum(n_seen + lost, 1)
        return np.where((told >= LEAST_INFORMATION) & (told * n_seen >= 1), told, 0)

    def shares(self, verdict: int) -> Floats:
        """Return the share of a verdict in each group (G,), NaN if the group has no certain verdict."""
        with np.errstate(invalid="ignore"):
            shares = (self.n_tasks * self.probability[:, :, verdict]).sum(axis=1) / self.n_tasks.sum(axis=1)
        return np.where(self.has_verdict, shares, np.nan)

    def extremes(self, verdict: int) -> tuple[Floats, Floats]:
        """Return the minimum and maximum number (G,) of labeled statements with a verdict, for any missing labels."""
        n_tasks = self.n_tasks.astype(np.float64)
        return n_tasks @ self.certain[:, verdict], n_tasks @ self.possible[:, verdict]

    def of_groups(self, verdict: int) -> VerdictSample:
        """Return the evidence of each group (G,) for a verdict."""
        worth, *parts = self._sample(verdict)
        return VerdictSample(
            self.n_tasks.sum(axis=1) * worth, *((self.n_tasks * part).sum(axis=1) * worth for part in parts)
        )

    def of_statements(self, group: Counts, pattern: Counts, verdict: int) -> VerdictSample:
        """Return the evidence of statements of `group` (D,) with `pattern` (D,).

        The evidence of a group's statements adds up to the group's evidence.
        """
        worth, *parts = self._sample(verdict)
        weight = worth[group] * (self.n_tasks[group, pattern] > 0)
        return VerdictSample(weight, *(part[group, pattern] * weight for part in parts))

    def _sample(self, verdict: int) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the number of complete statements to which a statement is equivalent (G,).

        Also return the statement's share of hits and the bounds on this share, (G, P) each. The bounds differ only if
        the labels do not identify the share.
        """
        told, probability = self._told[:, verdict], self.probability[:, :, verdict]
        least, most = (
            np.where((told > 0)[:, None], probability, limits[:, verdict]) for limits in (self.certain, self.possible)
        )
        return np.where(told > 0, told, 1.0) * self.has_verdict, probability, least, most


class _Fitted(NamedTuple):
    """Groups and patterns with missing labels, and the shares (G, F) of their full patterns."""

    group: Counts
    pattern: Counts
    labels: _Labels
    shares: Floats


class _Labels:
    """P label patterns and the F full patterns of k labels that can complete them.

    likelihood (P, F): probability of the labels, given the full pattern. verdict (F, 3), certain, possible (P, 3): 0 or
    1.
    """

    def __init__(self, counts: Counts, k: int, quorum: int, rule: VerdictRule) -> None:
        full = np.array([np.bincount(labels, minlength=3) for labels in combinations_with_replacement(range(3), k)])
        ways = scipy.special.comb(full[None, :, :], counts[:, None, :]).prod(axis=2)
        self.likelihood: Floats = ways / scipy.special.comb(k, counts.sum(axis=1))[:, None]
        self.verdict = np.eye(3)[rule(full, quorum)]  # one-hot rows
        may_be = self.likelihood > 0
        self.possible = (may_be @ self.verdict > 0).astype(np.float64)
        self.certain = self.possible * (self.possible.sum(axis=1) == 1)[:, None]
        self.is_certain = self.certain.any(axis=1)


def fit_shares(likelihood: Floats, n_tasks: Counts) -> Floats:
    """Return the maximum-likelihood shares of full patterns in each group (G, F), fitted by EM."""
    n_groups, n_patterns = len(n_tasks), likelihood.shape[1]
    shares = np.full((n_groups, n_patterns), 1 / n_patterns)
    moving, weight = np.arange(n_groups), n_tasks / n_tasks.sum(axis=1, keepdims=True)  # (G,), (G, P)
    for _ in range(MOST_STEPS):
        before = shares[moving]
        chance = before @ likelihood.T
        ratio = np.divide(weight, chance, out=np.zeros_like(chance), where=weight > 0)
        shares[moving] = after = before * (ratio @ likelihood)
        still = np.abs(after - before).max(axis=1, initial=0) > TOLERANCE
        moving, weight = moving[still], weight[still]
        if not len(moving):
            break
    return shares


def _information(likelihood: Floats, n_tasks: Counts, shares: Floats, has_verdict: Floats) -> float:
    """Return the information about a verdict's share that the labels of one group contain, in [0, 1].

    The result is based on the observed information about the shares (F,) of the full patterns that occur. If this
    information is singular in the direction of the verdict, the labels do not identify the share, and the result is 0.
    """
    occurs = shares > BOUNDARY
    n, share = int(n_tasks.sum()), float(shares @ has_verdict)
    is_certain = (likelihood @ has_verdict == 0) | (likelihood @ (1 - has_verdict) == 0)
    if is_certain.all():
        return 1.0
    if not TOLERANCE < share < 1 - TOLERANCE:
        return float(n_tasks[is_certain].sum() / n)
    scores = likelihood[:, occurs] / (likelihood @ shares)[:, None]
    observed = (scores * n_tasks[:, None]).T @ scores
    direction = has_verdict[occurs]
    solution = np.linalg.lstsq(observed, direction, rcond=SINGULAR)[0]
    if np.abs(observed @ solution - direction).max() > IDENTIFIED:
        return 0.0
    variance = float(direction @ solution) - share**2 / n
    return min(1.0, share * (1 - share) / n / variance) if variance > 0 else 0.0
