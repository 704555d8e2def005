"""Two sides compared by people's verdicts and a judge's labels, each side with verdicts of its own.

A judge errs at other rates on what another LM or setting says: whoever corrects both sides by errors seen on one, or
on both together, may well find the worse side better (arXiv 2605.06939). So each side's verdicts correct its own rate,
and nothing here takes them for the other's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evaluation.statistics.judges.judge_assisted import (
    GROUPS,
    JudgedSample,
    PostStrata,
    judge_assisted_rate,
    post_strata,
)
from evaluation.statistics.rates import Rate
from evaluation.statistics.statement_test import SharedStatements, SideSample, StatementDifference, statement_difference
from kgharvest.errors import DomainError

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


class SharedCalibration(DomainError):
    """One side's verdicts were to correct what the judge says of the other."""


class JudgedSide(NamedTuple):
    """One side's strata over all relations compared; shapes (S,) but for the sample.

    calibration: which strata, by number, the verdicts of the sample were drawn for. weight, relation: of `SideSample`.
    """

    sample: JudgedSample
    calibration: Counts
    weight: Floats
    relation: Counts


class JudgedDifference(NamedTuple):
    """difference: None where a side has no rate. a, b: of the sides."""

    difference: StatementDifference | None
    a: Rate
    b: Rate


def judged_difference(a: JudgedSide, b: JudgedSide, shared: SharedStatements | None = None) -> JudgedDifference:
    """Compare two sides, each post-stratified by what the judge says of it and calibrated by its own verdicts.

    shared: statements drawn for both, (3 S_a, 3 S_b), strata by label of the judge; those of which both sides tell the
    same labels apart make the two estimates alike. Raises SharedCalibration.
    """
    if np.intersect1d(a.calibration, b.calibration).size:
        raise SharedCalibration(
            "Both sides of the comparison are corrected by the same verdicts, but a judge errs differently on each; "
            "draw and judge statements of either side."
        )
    rate_a, rate_b = (judge_assisted_rate(side.sample, side.weight).rate for side in (a, b))
    groups = [post_strata(side.sample) for side in (a, b)]
    codes_a, codes_b = _codes(groups, (a, b))
    of_a, of_b = (
        SideSample(own.accepted, own.population, own.weights(side.weight), codes)
        for own, side, codes in zip(groups, (a, b), (codes_a, codes_b), strict=True)
    )
    in_groups = _in_groups(shared, groups, codes_a[:, np.newaxis] == codes_b) if shared else None
    return JudgedDifference(statement_difference(of_a, of_b, in_groups, rates=(rate_a, rate_b)), rate_a, rate_b)


def _codes(groups: list[PostStrata], sides: tuple[JudgedSide, JudgedSide]) -> list[Counts]:
    """Return a number (G,) of each group's relation and labels, the same for both sides."""
    rows = []
    for own, side in zip(groups, sides, strict=True):
        labels = np.zeros(len(own.population), dtype=np.int64)
        np.add.at(labels, own.group_of, (1 << np.arange(len(GROUPS))) * (side.sample.population > 0))
        rows.append(side.relation[own.stratum] * (1 << len(GROUPS)) + labels)
    _, codes = np.unique(np.concatenate(rows), return_inverse=True)
    return np.split(codes.reshape(-1), [len(rows[0])])


def _in_groups(shared: SharedStatements, groups: list[PostStrata], is_alike: NDArray[np.bool_]) -> SharedStatements:
    of_a, of_b = (own.group_of.ravel() for own in groups)
    sums = []
    for matrix in shared:
        in_groups = np.zeros(is_alike.shape)
        np.add.at(in_groups, (of_a[:, np.newaxis], of_b), matrix)
        sums.append(np.where(is_alike, in_groups, 0))
    return SharedStatements(*sums)
