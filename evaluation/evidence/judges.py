"""Labels of an LM judge for the statements of a round and for all tuples in the population of the round's strata.

Array shapes use the letters of evaluation.evidence.evidence. U is the number of tuples that the judge answered, or the
number of tuples in the population. A dimension of 3 stands for the groups of labels.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evaluation.evidence.evidence import DrawnVerdicts, Evidence, ranked_strata
from evaluation.evidence.tables import EMPTY, Columns, Rows
from kgharvest.statistics.arrays import TRUE, UNJUDGEABLE, Codes, Flags, Floats
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
from kgharvest.statistics.judge_quality import N_LABELS, UNPARSABLE
from kgharvest.statistics.rates import (
    UNKNOWN_POPULATION,
    Cumulated,
    Cuts,
    KeptPart,
    Rate,
    VerdictSample,
    bounded_numbers,
)

CAUSAL, SCORE = "causal", "score"  # values of annotation.judges.models.JudgeKind, which imports Django
N_GROUPS = len(GROUPS)
GROUP_OF_LABEL = np.array([CALLED_TRUE, CALLED_FALSE, OTHER, OTHER, OTHER])  # the last one is for NO_ANSWER
NO_ANSWER = -1
DESCRIBED = (
    "name", "model", "revision", "judge_kind", "prompt_sha256", "temperature", "seed", "repeats", "threshold",
)  # fmt: skip


class OtherRun(NamedTuple):
    """Another judge run of the round. differs: options in which the runs differ.

    own, other (V,): labels that the report's run and this run gave to the same tuples.
    """

    name: str
    model: str
    differs: Sequence[str]
    own: Codes
    other: Codes


class PanelLabels(NamedTuple):
    """A panel of judges with its M runs. label (T, M): NO_ANSWER if a run has no answer."""

    name: str
    runs: Sequence[str]
    label: Codes


@dataclass(frozen=True)
class JudgeAnswers:
    """Answers of a judge.

    described: definition of the judge. label (T,): codes of judge_quality, or NO_ANSWER. probability (T,): probability
    of True, or the share of True in repeats; NaN if unknown. score (T,): score of a score judge in nats, or NaN.
    repeats (U, 4): number of answers by label.
    """

    described: Mapping[str, Any]
    label: Codes
    probability: Floats
    score: Floats
    repeats: Codes
    others: Sequence[OtherRun]
    panel: PanelLabels | None


class RunLabels:
    """Answers of one judge run by tuple.

    tuples (U,): ascending ids. votes (U, 4): number of answers by label. label (U,): the most frequent label, ignoring
    unreadable answers; UNPARSABLE if labels tie or no answer is readable. score (U,): mean score, or NaN.
    """

    def __init__(self, answers: Columns, run: int) -> None:
        is_of_run = answers["run"] == run
        self.tuples, position = np.unique(answers["tuple"][is_of_run], return_inverse=True)
        n, label, score = len(self.tuples), answers["label"][is_of_run], answers["score"][is_of_run]
        code = np.where(label == EMPTY, UNPARSABLE, label)
        self.votes = np.bincount(position * N_LABELS + code, minlength=n * N_LABELS).reshape(n, N_LABELS)
        of_labels = self.votes[:, : UNJUDGEABLE + 1]
        *_, second, first = np.sort(of_labels, axis=1).T
        self.label = np.where(first > second, of_labels.argmax(axis=1), UNPARSABLE)
        has_score = ~np.isnan(score)
        n_scores = np.bincount(position[has_score], minlength=n)
        self.score = np.bincount(position[has_score], score[has_score], n) / np.where(n_scores, n_scores, np.nan)

    def of(self, tuples: Codes) -> Codes:
        """Return the label of each tuple, or NO_ANSWER."""
        return self.at(tuples, self.label, NO_ANSWER)

    def at(self, tuples: Codes, values: Codes | Floats, otherwise: float) -> Any:
        """Return the value of each tuple, or `otherwise` if the run has no answer for it."""
        if not len(self.tuples):
            return np.full(len(tuples), otherwise)
        position = np.minimum(np.searchsorted(self.tuples, tuples), len(self.tuples) - 1)
        return np.where(self.tuples[position] == tuples, values[position], otherwise)


def judge_answers_of_rows(rows: Rows, evidence: Evidence) -> JudgeAnswers:
    """Return the answers of run 1, with the labels of the other runs for comparison."""
    runs = [dict(zip(rows["judge_runs"], run, strict=True)) for run in zip(*rows["judge_runs"].values(), strict=True)]
    labels = [RunLabels(rows["judge_answers"], run["run"]) for run in runs]
    judge, judge_labels, statements = runs[0], labels[0], rows["statements"]["tuple"][: evidence.n_tasks]
    others = []
    for run, run_labels in zip(runs[1:], labels[1:], strict=True):
        if len(run_labels.tuples):
            shared = np.intersect1d(judge_labels.tuples, run_labels.tuples)
            codes = judge_labels.of(shared), run_labels.of(shared)
            others.append(OtherRun(run["name"], run["model"], json.loads(run["differs"]), *codes))
    n_votes = judge_labels.votes.sum(axis=1)
    share = np.where(n_votes > 1, judge_labels.votes[:, TRUE] / n_votes, np.nan)
    probability = judge_labels.score if judge["kind"] == CAUSAL else share
    score = judge_labels.score if judge["kind"] == SCORE else np.full(len(judge_labels.tuples), np.nan)
    panel = None
    if name := judge["panel"]:
        members = {run["name"]: of_run for run, of_run in zip(runs, labels, strict=True) if run["panel"] == name}
        names = sorted(members)
        panel = PanelLabels(name, names, np.column_stack([members[member].of(statements) for member in names]))
    return JudgeAnswers(
        described={name: judge["kind" if name == "judge_kind" else name] for name in DESCRIBED}
        | {"revision": judge["revision"] or ""},
        label=judge_labels.of(statements),
        probability=judge_labels.at(statements, probability, np.nan),
        score=judge_labels.at(statements, score, np.nan),
        repeats=judge_labels.votes,
        others=others,
        panel=panel,
    )


class JudgedTuples(NamedTuple):
    """Label groups of the draws (D,) and of the population (U,), without tuples that curation excludes.

    run, model: names of the judge run and its LM. is_labelled: True if the judge gave any answer. If any tuple of a
    stratum has no answer, all tuples of the stratum are in the group OTHER. Judges label drawn tuples first, so in such
    a stratum the labeled tuples are mainly the drawn ones and do not represent the others.
    """

    run: str
    model: str
    group_of_draw: Codes
    stratum: Codes
    rank: Codes
    group: Codes
    is_labelled: Codes


def judged_tuples_of_rows(rows: Rows, evidence: Evidence) -> JudgedTuples:
    """Return the label groups of run 1 for all tuples in the population of the strata."""
    harvested, runs = rows["harvested"], rows["judge_runs"]
    label = RunLabels(rows["judge_answers"], 1).of(harvested["tuple"])
    table = np.array([
        harvested["rank"], GROUP_OF_LABEL[label], label != NO_ANSWER, harvested["left_out"] == EMPTY,
    ], dtype=np.int64)  # fmt: skip
    starts = np.flatnonzero(np.diff(harvested["harvest"], prepend=0))
    harvests = dict(zip(harvested["harvest"][starts].tolist(), np.split(table, starts[1:], axis=1), strict=False))
    group_of_draw = np.full(len(evidence.draws.task), OTHER)
    columns = [np.zeros((4, 0), dtype=np.int64)]
    for number, stratum in enumerate(evidence.strata):
        if stratum.job is None:
            continue
        rank, group, is_labelled, is_in_frame = harvests[stratum.job]
        drawn = np.flatnonzero((evidence.draws.stratum == number) & (evidence.draws.rank > 0))
        group_of_draw[drawn] = group[np.searchsorted(rank, evidence.draws.rank[drawn])]
        is_in = (rank >= (stratum.rank_from or 0)) & (rank <= (stratum.rank_to or 0)) & (is_in_frame > 0)
        if stratum.ranks:  # strata by judge label have interleaved ranks
            is_in &= np.isin(rank, stratum.ranks)
        if not is_labelled[is_in].all():
            group, group_of_draw[drawn] = np.full(len(rank), OTHER), OTHER
        columns.append(np.array([np.full(len(rank), number), rank, group, is_labelled])[:, is_in])
    return JudgedTuples(runs["name"][0], runs["model"][0], group_of_draw, *np.concatenate(columns, axis=1))


class JudgedStrata:
    """Strata of a round, divided by the judge's label group.

    Corresponds to `kgharvest.statistics.rates.RankedStrata`, which has no judge.
    """

    def __init__(self, evidence: Evidence, drawn: DrawnVerdicts, tuples: JudgedTuples) -> None:
        self.tuples = tuples
        self.ranked = ranked_strata(evidence, drawn)
        draws = evidence.draws
        counted = (draws.rank > 0) & (evidence.population_of_stratum[draws.stratum] > 0)
        most = int(np.concatenate([draws.rank, tuples.rank, self.ranked.last]).max(initial=0)) + 1
        self._group_of_ranked = tuples.group_of_draw[counted]  # by draw of `ranked`
        group = draws.stratum[counted] * N_GROUPS + self._group_of_ranked
        self._drawn = Cumulated(group, draws.rank[counted], most, [np.ones(len(group)), *drawn.accepted.at(counted)])
        of_all = tuples.stratum * N_GROUPS + tuples.group
        self._all = Cumulated(of_all, tuples.rank, most, [np.ones(len(of_all)), tuples.is_labelled])
        sides = evidence.side_of_cell[evidence.cell_of_stratum]
        self._is_heard = np.zeros(len(sides), dtype=bool)
        for side in range(len(evidence.sides)):
            strata = np.flatnonzero(sides == side)
            self._is_heard[strata] = tells_apart(self.sample(strata, self.ranked.last[strata]))

    def heard(self, strata: Codes, last_rank: Codes) -> JudgedSample:
        """Return `sample`, ignoring the judge for each LM and setting with verdicts that do not depend on its labels.

        Whether to ignore the judge is decided once per LM and setting, so that an average is the mean of its cells.
        """
        sample = self.sample(strata, last_rank)
        alone, is_heard = people_alone(sample), self._is_heard[strata][:, np.newaxis]
        population, drawn = (np.where(is_heard, sample[part], alone[part]) for part in (0, 1))
        accepted = (np.where(is_heard, *both) for both in zip(sample.accepted, alone.accepted, strict=True))
        return JudgedSample(population, drawn, VerdictSample(*accepted), sample.further_effects)

    def sample(self, strata: Codes, last_rank: Codes) -> JudgedSample:
        """Return the sample of `strata` (S,) up to `last_rank` (S,), by label group."""
        n_drawn, *accepted = self._up_to(self._drawn, strata, last_rank)
        counted, _ = self._up_to(self._all, strata, last_rank)
        population = self.ranked.parts(strata, last_rank).population
        drawn = n_drawn.astype(np.int64)
        of_groups = VerdictSample(*accepted)
        effects, of_errors = (
            np.minimum(
                self.ranked.effects_up_to(strata, last_rank, population, group),
                np.maximum(of_groups.n.sum(axis=1), 1),
            )
            for group in (None, self._group_of_ranked)
        )
        further = np.maximum(of_errors / effects, 1)
        effective = of_groups.divided(effects[:, None])
        return JudgedSample(_apportioned(counted, population, drawn), drawn, effective, further)

    def rate(self, strata: Codes, last_rank: Codes, weights: Floats | None = None) -> AssistedRate:
        """Return the joint share of accepted tuples up to `last_rank`. weights (S,): as in `judge_assisted_rate`."""
        taken, is_taken = self._taken(strata, last_rank)
        if not is_taken.any():
            return AssistedRate(*(Rate(reason=UNKNOWN_POPULATION),) * 2, PEOPLE_ALONE, None)
        return judge_assisted_rate(taken, None if weights is None else weights[is_taken])

    def largest_part(self, cuts: Cuts, target: float) -> KeptPart | None:
        """Return the largest cut with a judge-assisted precision of at least `target`, or None."""
        for number in reversed(range(len(cuts.share))):
            taken, is_taken = self._taken(cuts.strata, np.full(len(cuts.strata), cuts.last_rank[number]))
            value = judge_assisted_share(taken) if is_taken.any() else None
            if value is not None and value >= target - 1e-9:
                return self.part(cuts, number)
        return None

    def surely_largest_part(self, cuts: Cuts, target: float) -> KeptPart | None:
        """Return the largest tried cut with a judge-assisted lower limit of at least `target`, or None."""
        parts = (self.part(cuts, number) for number in reversed(bounded_numbers(cuts)))
        return next((part for part in parts if part.low >= target - 1e-9), None)

    def part(self, cuts: Cuts, number: int) -> KeptPart:
        last_rank = np.full(len(cuts.strata), cuts.last_rank[number])
        value, low, high = self.rate(cuts.strata, last_rank).rate.with_interval or (np.nan, np.nan, np.nan)
        n = int(self.ranked.parts(cuts.strata, last_rank).n.sum())
        return KeptPart(float(cuts.score[number]), value, low, high, n)

    def _taken(self, strata: Codes, last_rank: Codes) -> tuple[JudgedSample, Flags]:
        """Return the sample of the strata with tuples in the part, and a mask of these strata."""
        sample = self.heard(strata, last_rank)
        is_taken = sample.population.any(axis=1)
        accepted = VerdictSample(*(column[is_taken] for column in sample.accepted))
        further = None if sample.further_effects is None else sample.further_effects[is_taken]
        return JudgedSample(sample.population[is_taken], sample.drawn[is_taken], accepted, further), is_taken

    def groups(self) -> tuple[Codes, Codes]:
        """Return the group of each draw (D,), and the number of tuples by stratum and group (S, 3)."""
        every_stratum = np.arange(len(self.ranked.last))
        return self.tuples.group_of_draw, self.sample(every_stratum, self.ranked.last).population

    def n_labelled(self, strata: Codes) -> int:
        """Return the number of tuples with an answer."""
        _, is_labelled = self._up_to(self._all, strata, self.ranked.last[strata])
        return int(is_labelled.sum())

    def is_labelled(self, strata: Codes) -> bool:
        """Return True if every tuple has an answer."""
        counted, is_labelled = self._up_to(self._all, strata, self.ranked.last[strata])
        return bool(counted.sum() == is_labelled.sum())

    def _up_to(self, cumulated: Cumulated, strata: Codes, last_rank: Codes) -> Floats:
        """Return the sums of each column (columns, S, 3) over ranks up to `last_rank` (S,)."""
        groups = strata[:, np.newaxis] * N_GROUPS + np.arange(N_GROUPS)  # (S, 3)
        return cumulated.up_to(groups, last_rank[:, np.newaxis])


def _apportioned(counted: Floats, population: Codes, drawn: Codes) -> Codes:
    """Return the number of tuples by group (S, 3): at least `drawn` (S, 3), adding up to `population` (S,) per stratum.

    `counted` contains the tuples that curation does not hide now. Tuples hidden after the draw still belong to the
    population. They are apportioned like the counted tuples, by the method of largest remainders.
    """
    apportioned = np.maximum(counted, drawn).astype(np.int64)
    for row in np.flatnonzero(apportioned.sum(axis=1) != population):
        rest, shares = population[row] - drawn[row].sum(), np.maximum(counted[row] - drawn[row], 0)
        exact = rest * shares / shares.sum() if shares.any() else np.array([0.0, 0.0, float(rest)])
        parts = np.floor(exact).astype(np.int64)
        parts[np.argsort(parts - exact, kind="stable")[: rest - parts.sum()]] += 1
        apportioned[row] = drawn[row] + parts
    return apportioned


def statement_weights(evidence: Evidence) -> Floats:
    """Return the weight of each statement (T,): the sum of its draws' inverse inclusion probabilities.

    The weight of a draw from an unknown population is 1.
    """
    drawn = np.bincount(evidence.draws.stratum, minlength=len(evidence.strata))
    size = evidence.size_of_stratum
    weight = np.where(size > 0, size / np.maximum(drawn, 1), 1.0)
    weights: Floats = np.bincount(evidence.draws.task, weight[evidence.draws.stratum], evidence.n_tasks)
    return weights


def relation_of_statement(evidence: Evidence) -> tuple[list[str], Codes]:
    """Return the sorted relations, and for each statement (T,) the position of its relation."""
    names = sorted({cell.relation for cell in evidence.cells})
    of_cell = np.array([names.index(cell.relation) for cell in evidence.cells], dtype=np.int64)
    relation = np.zeros(evidence.n_tasks, dtype=np.int64)
    relation[evidence.draws.task] = of_cell[evidence.cell_of_draw]
    return names, relation
