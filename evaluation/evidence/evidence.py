"""Evidence of a report: judgments, verdicts of drawn statements, and cells.

It is computed from rows, without a database.

Letters in array shapes stand for the number of: statements without gold (T), counted judgments (J), annotators (A),
draws (D), strata (S), strata of one cell (s), cells (C), judgments of gold statements (G), and label patterns (P).
Statements, annotators, and strata are numbered from 0 in a fixed order.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from evaluation.evidence.tables import COUNTED, EMPTY, EXCLUDED, GOLD, STATUSES, Columns, Rows
from kgharvest.statistics.arrays import ACCEPTED, INCOMPLETE, LABELS, VERDICTS, Codes, Flags, Floats
from kgharvest.statistics.clusters import design_effects
from kgharvest.statistics.fixed_width import Closing, closing_interval, interval_at_stop
from kgharvest.statistics.paired_tests import CellKey, Side
from kgharvest.statistics.rates import Members, RankedStrata, Rate, VerdictSample, sample_rate
from kgharvest.statistics.statement_test import SharedStatements, SideSample, StatementDifference, statement_difference
from kgharvest.statistics.verdicts import CompletedVerdicts, VerdictRule, majority

BASES = (10, 100)  # values of k for the cuts base:k in Table 2


class StratumKey(NamedTuple):
    """A stratum of cell number `cell`. The other fields are None if the population is unknown. job: id of the harvest.

    judge_label, ranks: as in `annotation.models.Stratum`. weight: share of the cell's population, if only this share
    is known.
    """

    cell: int
    rank_from: int | None
    rank_to: int | None
    population: int | None
    job: int | None = None
    judge_label: str = ""
    ranks: Sequence[int] | None = None
    weight: float | None = None


class Judgments(NamedTuple):
    """Judgments, sorted by statement, then by annotator. seconds: NaN if not measured. All arrays have shape (J,)."""

    task: Codes
    annotator: Codes
    label: Codes
    seconds: Floats


class ExcludedJudgments(NamedTuple):
    """Judgments of an excluded annotator that counted before the exclusion. Both arrays have shape (E,)."""

    task: Codes
    label: Codes


class Conduct(NamedTuple):
    """Study log.

    `entry` is the object `conduct` described in docs/report-json.md, without the parts that require verdicts.

    `excluded` maps the codes of excluded annotators to their judgments.
    """

    entry: Mapping[str, Any]
    excluded: Mapping[str, ExcludedJudgments]


class Draws(NamedTuple):
    """Draws of statements. All arrays have shape (D,). Without a harvest, rank is 0 and score is NaN."""

    task: Codes
    stratum: Codes
    rank: Codes
    score: Floats


class SampledHarvest(NamedTuple):
    """A harvest from which statements were drawn. population: number of top-ranked tuples in the sampling frame.

    kept_by_base: number of tuples in the cut `base:k`, by k. If a cut exceeds the population, its k is absent.
    """

    job: int
    side: Side
    population: int
    kept_by_base: Mapping[int, int]


class Patterns(NamedTuple):
    """Label patterns: distinct combinations of label counts and the number of required judgments.

    counts (P, 3): number of judgments by label. wanted (P,): number of required judgments. of_task (T,): pattern of
    each statement. n_tasks (P,): number of statements with each pattern.
    """

    counts: Codes
    wanted: Codes
    of_task: Codes
    n_tasks: Codes


@dataclass(frozen=True)
class Evidence:
    """The judgments and samples of a round as arrays.

    verdict (T,): verdicts as positions in VERDICTS. adjudicated (T,): expert's verdict, or INCOMPLETE. cells: in
    report order. annotators: sorted codes. has_thirds: True if a third judgment was requested only if the first two
    differed. third (T,): annotator of the third judgment, or -1. wanted (T,): number of required judgments, including
    judgments by excluded annotators. quorum: minimum number of judgments for a verdict. gold: judgments of gold
    statements, numbered after the other statements; gold_truth (number of gold statements,): TRUE or FALSE.
    demonstrators: LMs of the round whose accuracy does not generalize to other LMs. planned: the two sides of each
    preregistered comparison; None without a preregistration. cluster (D,): number of the cluster with which each
    statement was drawn; None if statements were drawn one by one. closed_at: half-width of the
    averages of LMs and settings at which the round was closed; None if another rule applied.
    """

    round: str
    source: str
    seed: int
    judgments_per_task: int
    quorum: int
    has_thirds: bool
    verdict: Codes
    adjudicated: Codes
    third: Codes
    wanted: Codes
    judgments: Judgments
    cells: Sequence[CellKey]
    strata: Sequence[StratumKey]
    draws: Draws
    annotators: Sequence[str]
    gold: Judgments
    gold_truth: Codes
    demonstrators: Sequence[str]
    harvests: Sequence[SampledHarvest] = ()
    planned: frozenset[frozenset[Side]] | None = None
    cluster: Codes | None = None
    closed_at: float | None = None

    @property
    def n_tasks(self) -> int:
        return len(self.verdict)

    def effects(self, is_hit: Flags, is_used: Flags) -> Floats:
        """Return the design effects (S,) of clustering on the share of hits among the draws that are used.

        is_hit, is_used (T,). Without clusters, the effects are 1.
        """
        task, stratum = self.draws.task, self.draws.stratum
        if self.cluster is None:
            return np.ones(len(self.strata))
        chosen = is_used[task]
        columns = (is_hit[task][chosen], stratum[chosen], self.cluster[chosen])
        return design_effects(*columns, len(self.strata), self.population_of_stratum)

    def effective(self, accepted: VerdictSample) -> VerdictSample:
        """Return evidence for the verdict ACCEPTED, by draw (D,), converted to statements of simple random samples."""
        return accepted.divided(self.accuracy_effects[self.draws.stratum])

    @cached_property
    def accuracy_effects(self) -> Floats:
        """Design effects on accuracy, (S,)."""
        return self.effects(self.verdict == ACCEPTED, self.is_complete)

    @cached_property
    def is_complete(self) -> Flags:
        is_complete: Flags = self.verdict != INCOMPLETE
        return is_complete

    @cached_property
    def first_two(self) -> Evidence:
        """Evidence without third judgments, which would give disputed statements more weight."""
        if not self.has_thirds:
            return self
        is_first = self.judgments.annotator != self.third[self.judgments.task]
        return replace(self, judgments=Judgments(*(column[is_first] for column in self.judgments)))

    @cached_property
    def counts(self) -> Codes:
        """Number of judgments (T, 3) by label."""
        return label_counts(self.judgments, self.n_tasks)

    @cached_property
    def patterns(self) -> Patterns:
        return patterns_of(self.counts, self.wanted)

    @cached_property
    def cell_of_stratum(self) -> Codes:
        return np.array([stratum.cell for stratum in self.strata], dtype=np.int64)  # (S,)

    @cached_property
    def strata_of_cells(self) -> list[Codes]:
        """Ascending stratum numbers of each cell."""
        order = np.argsort(self.cell_of_stratum, kind="stable")
        edges = np.searchsorted(self.cell_of_stratum[order], np.arange(1, len(self.cells)))
        return np.split(order, edges)[: len(self.cells)]

    @cached_property
    def population_of_stratum(self) -> Floats:
        """Population of each stratum, (S,); 0 if unknown."""
        return np.array([stratum.population or 0 for stratum in self.strata], dtype=np.float64)

    @cached_property
    def size_of_stratum(self) -> Floats:
        """Size of each stratum relative to its cell, (S,): the population, or the weight; 0 if unknown."""
        return np.array([stratum.weight or stratum.population or 0 for stratum in self.strata], dtype=np.float64)

    @cached_property
    def sides(self) -> list[Side]:
        """Sides (LM and setting) in order of first appearance."""
        return list(dict.fromkeys(Side(cell.model, cell.setting) for cell in self.cells))

    @cached_property
    def side_of_cell(self) -> Codes:
        number = {side: position for position, side in enumerate(self.sides)}
        return np.array([number[Side(cell.model, cell.setting)] for cell in self.cells], dtype=np.int64)  # (C,)

    @cached_property
    def cell_of_draw(self) -> Codes:
        return self.cell_of_stratum[self.draws.stratum]  # (D,)


def label_counts(judgments: Judgments, n_tasks: int) -> Codes:
    """Return the number of judgments (T, 3) by label."""
    pair = judgments.task * len(LABELS) + judgments.label
    return np.bincount(pair, minlength=n_tasks * len(LABELS)).reshape(n_tasks, len(LABELS))


def patterns_of(counts: Codes, wanted: Codes) -> Patterns:
    """Return the label patterns of statements. counts (T, 3): number of judgments by label.

    wanted (T,): number of required judgments.
    """
    rows = np.column_stack([counts, np.maximum(wanted, counts.sum(axis=1))])
    base = int(rows.max(initial=0)) + 1
    place = np.array([base**3, base**2, base, 1])
    codes, of_task, n_tasks = np.unique(rows @ place, return_inverse=True, return_counts=True)
    distinct = codes[:, None] // place % base
    return Patterns(distinct[:, :3], distinct[:, 3], of_task.reshape(-1), n_tasks)


def changed_patterns(patterns: Patterns, tasks: Codes, counts: Codes, wanted: Codes) -> tuple[Patterns, Codes]:
    """Return the patterns, and their new numbers, after `tasks` (n,) change to `counts` (n, 3) and `wanted` (n,).

    The tasks are distinct. The result's `of_task` covers only these tasks. The array of new numbers (P,) maps each
    previous pattern to its new number, or to -1 if the pattern no longer occurs.
    """
    new = patterns_of(counts, wanted)
    rows = np.concatenate([np.column_stack(patterns[:2]), np.column_stack(new[:2])])
    distinct, number = np.unique(rows, axis=0, return_inverse=True)
    before, after = np.split(number.reshape(-1), [len(patterns.counts)])
    n_tasks = np.zeros(len(distinct), dtype=np.int64)
    n_tasks[before] = patterns.n_tasks
    n_tasks -= np.bincount(before[patterns.of_task[tasks]], minlength=len(distinct))
    n_tasks[after] += new.n_tasks
    is_left = n_tasks > 0
    renumbered = np.where(is_left, np.cumsum(is_left) - 1, -1)
    left = Patterns(distinct[is_left, :3], distinct[is_left, 3], renumbered[after][new.of_task], n_tasks[is_left])
    return left, renumbered[before]


# Evidence from rows


ASKED_IF_SPLIT = 3  # number of judgments of a statement whose first two judgments differ
IS_EXCLUDED = "excluded"  # status of an annotator


def evidence_of_rows(rows: Rows, rules: Mapping[str, Any]) -> Evidence:
    """Return the evidence, with verdicts recomputed from the judgments.

    rules: from `evaluation.evidence.rows.rules_of_round`.
    """
    statements, judgments, draws, annotators = (
        rows[name] for name in ("statements", "judgments", "draws", "annotators")
    )
    n_tasks = int(np.count_nonzero(~statements["is_gold"]))
    is_in = np.array([status != IS_EXCLUDED for status in annotators["status"]], dtype=np.bool_)
    counted = _judgments(judgments, judgments["status"] == COUNTED)
    present = np.unique(counted.annotator)
    new_number = np.full(len(is_in), -1)
    new_number[present] = np.arange(len(present))
    # Judgments of gold statements never have the status COUNTED. All current gold judgments are used, except those of
    # excluded annotators.
    is_in &= new_number >= 0
    gold = _judgments(judgments, (judgments["status"] == GOLD) & is_in[judgments["annotator"]])
    third = np.full(n_tasks, -1)
    if rules["has_thirds"]:
        task, annotator = _third_judgments(judgments)
        third[task] = new_number[annotator]
    counts, n_wanted = label_counts(counted, n_tasks), statements["n_wanted"][:n_tasks]
    verdict = np.where(counts.sum(axis=1) < n_wanted, INCOMPLETE, majority(counts, rules["quorum"]))
    # An expert's label and the resulting verdict have the same code.
    adjudication = statements["adjudication"][:n_tasks]
    adjudicated = np.where(adjudication == EMPTY, INCOMPLETE, adjudication)
    strata = rows["strata"]
    keys = list(map(CellKey, strata["relation"], strata["model"], strata["setting"]))
    names = ("round", "source", "seed", "judgments_per_task", "quorum", "has_thirds", "demonstrators")
    return Evidence(
        **{name: rules[name] for name in names},
        verdict=verdict,
        adjudicated=adjudicated,
        third=third,
        wanted=np.maximum(n_wanted, rules["least_k"]),
        judgments=counted._replace(annotator=new_number[counted.annotator]),
        cells=list(dict.fromkeys(keys)),
        strata=stratum_keys(strata),
        draws=Draws(draws["statement"] - 1, draws["stratum"] - 1, draws["rank"], draws["score"]),
        annotators=[annotators["annotator"][number] for number in present.tolist()],
        gold=gold._replace(annotator=new_number[gold.annotator]),
        gold_truth=statements["gold_label"][n_tasks:],
        harvests=sampled_harvests(rows["harvests"]),
        cluster=rows.get("clusters", {}).get("cluster"),
        closed_at=rules.get("closed_at_half_width"),
    )


def _judgments(judgments: Columns, chosen: Flags) -> Judgments:
    names = ("statement", "annotator", "label", "seconds")
    task, annotator, label, seconds = (judgments[name][chosen] for name in names)
    order = np.lexsort((annotator, task))
    return Judgments(task[order] - 1, annotator[order], label[order], seconds[order])


def _third_judgments(judgments: Columns) -> tuple[Codes, Codes]:
    """Return the tasks with a tie-breaking third judgment, and the annotators of these judgments.

    The third annotator is the one of three who judged the task last, as in
    `annotation.judging.third_judgments.third_annotators`. Correcting a judgment does not change this order.
    """
    n = int(judgments["annotator"].max(initial=0)) + 1
    pair = (judgments["statement"] - 1) * n + judgments["annotator"]
    distinct, first = np.unique(pair, return_index=True)
    is_counted = np.isin(distinct, pair[judgments["status"] == COUNTED])
    in_order = distinct[is_counted][np.argsort(first[is_counted])]
    task, annotator = in_order // n, in_order % n
    last = len(task) - 1 - np.unique(task[::-1], return_index=True)[1]
    last = last[np.bincount(task)[task[last]] == ASKED_IF_SPLIT]
    return task[last], annotator[last]


def stratum_keys(strata: Columns) -> list[StratumKey]:
    """Return the strata, with cells numbered in order of first appearance."""
    keys = list(zip(strata["relation"], strata["model"], strata["setting"], strict=True))
    number = {key: position for position, key in enumerate(dict.fromkeys(keys))}
    names = ("harvest", "rank_from", "rank_to", "population", "judge_label", "ranks")
    columns = (strata[name] for name in names)
    weights = strata.get("weight") or [None] * len(keys)  # only label files contain weights
    return [
        StratumKey(number[key], first, last, population, job, judge_label or "", ranks and json.loads(ranks))
        if job
        else StratumKey(number[key], None, None, None, weight=weight)
        for key, weight, job, first, last, population, judge_label, ranks in zip(keys, weights, *columns, strict=True)
    ]


def sampled_harvests(harvests: Columns) -> list[SampledHarvest]:
    names = ("harvest", "model", "setting", "last_rank", "kept_by_base")
    return [
        SampledHarvest(job, Side(model, setting), last_rank, {k: n for k, n in kept.items() if n <= last_rank})
        for job, model, setting, last_rank, kept in zip(*(harvests[name] for name in names), strict=True)
    ]


def conduct_of_rows(rows: Rows, quota: int | None, facts: Mapping[str, Any], evidence: Evidence) -> Conduct:
    """Return the study log.

    Its counts are computed from the rows; `facts` come from `evaluation.evidence.rows.conduct_facts`.
    """
    judgments, annotators = rows["judgments"], rows["annotators"]
    n_of_status = np.bincount(judgments["status"], minlength=len(STATUSES)).tolist()
    gold = rows["statements"]["gold_label"][rows["statements"]["is_gold"]].tolist()
    statuses: Counter[str] = Counter(annotators["status"])
    blocked = {line["annotator"] for line in facts["timeline"] if line["kind"] == "limit_crossed"}
    people = {
        "n_judged": len(np.unique(judgments["annotator"])),
        "n_counted": len(np.unique(judgments["annotator"][judgments["status"] == COUNTED])),
        "n_blocked_by_limits": len(blocked),
        "n_joined": len(annotators["status"]),
        "n_trained": sum(annotators["is_trained"]),
        "n_excluded": statuses[IS_EXCLUDED],
        "n_paused": statuses["paused"],
        "n_with_full_share": sum(quota is not None and n_judged >= quota for n_judged in annotators["n_judged"]),
    }
    n_judgments = {"n_given": sum(n_of_status)}
    n_judgments |= {f"n_{status}": n for status, n in zip(STATUSES, n_of_status, strict=True)}
    entry = {
        **{name: facts[name] for name in ("dates", "design", "limits")},
        "people": facts["people"] | people,
        "training": facts["training"],
        "gold": {"n_true": gold.count(0), "n_false": gold.count(1)} | facts["gold"],
        "judgments": n_judgments | facts["judgments"],
        "adjudications": {"n_statements": int(np.count_nonzero(rows["statements"]["adjudication"] != EMPTY))}
        | facts["adjudications"],
        **{name: facts[name] for name in ("answers", "exclusions", "imports", "timeline") if name in facts},
        "cells": cell_entries(evidence, rows),
        # Absent without warnings, as in earlier reports and packages.
        **({"noise_warnings": warnings} if (warnings := facts.get("noise_warnings")) else {}),
    }
    excluded = {}
    for number, code in enumerate(annotators["annotator"]):
        if annotators["status"][number] == IS_EXCLUDED:
            is_theirs = (judgments["annotator"] == number) & (judgments["status"] == EXCLUDED)
            if is_theirs.any():
                excluded[code] = ExcludedJudgments(judgments["statement"][is_theirs] - 1, judgments["label"][is_theirs])
    return Conduct(entry, excluded)


BY_LENGTH = ("top", "share")  # cuts that depend only on the length of a harvest
HARVEST = ("origin", "revision", "dtype", "device", "harvested_at", "code_version")
FRAME = ("cut", "kept", "left_out", "hidden", "sensitive", "population")


def cell_entries(evidence: Evidence, rows: Rows) -> list[dict[str, Any]]:
    """Return the list `conduct.cells` of docs/report-json.md, in report order."""
    harvests = rows["harvests"]
    place = {job: number for number, job in enumerate(harvests["harvest"])}
    prompts: defaultdict[int | None, list[dict[str, Any]]] = defaultdict(list)
    for job, text, origin, weight in zip(
        *(rows["prompts"][name] for name in ("harvest", "text", "origin", "weight")), strict=True
    ):
        prompts[job].append({"text": text, "origin": origin, "weight": weight})
    n_drawn = np.bincount(evidence.draws.stratum, minlength=len(evidence.strata))
    entries = []
    for key, numbers in zip(evidence.cells, evidence.strata_of_cells, strict=True):
        strata = [evidence.strata[number] for number in numbers.tolist()]
        job = strata[0].job
        entry = dict.fromkeys(("job", *HARVEST, "harvested", *FRAME))
        if job is not None:
            harvest = {name: column[place[job]] for name, column in harvests.items()}
            population = sum(stratum.population or 0 for stratum in strata)
            last_rank = max(stratum.rank_to or 0 for stratum in strata)
            kept = n_kept(harvest["n_tuples"], harvest["cut"] or "", last_rank)
            entry |= {name: harvest[name] for name in HARVEST}
            entry |= {"job": harvest["fingerprint"], "harvested": harvest["n_tuples"], "cut": harvest["cut"]}
            entry |= {"kept": kept, "left_out": kept - population, "population": population}
            entry |= {name: sum(rank <= kept for rank in harvest[name]) for name in ("hidden", "sensitive")}
        entries.append({
            **key._asdict(), **entry, "n_strata": len(strata), "drawn": int(n_drawn[numbers].sum()),
            "n_prompts": len(prompts[job]), "prompts": prompts[job],
        })  # fmt: skip
    return entries


def n_kept(n_tuples: int, cut: str, last_rank: int) -> int:
    """Return the number of tuples in the cut; for a cut by score, the last rank of the sampling frame."""
    if not cut:
        return n_tuples
    from kgharvest.harvests.cuts import parse_cut  # requires Django, unlike label files

    parsed = parse_cut(cut)
    return parsed.size(range(n_tuples)) if parsed.kind in BY_LENGTH else last_rank


# Cells


class DrawnVerdicts(CompletedVerdicts):
    """Verdicts of the statements drawn for each stratum, including incomplete statements.

    The groups are the strata (S,).

    draws: stratum (D,) and task (D,) of each draw. patterns: label patterns of the statements.
    """

    def __init__(
        self, n_strata: int, draws: tuple[Codes, Codes], patterns: Patterns, quorum: int, rule: VerdictRule = majority
    ) -> None:
        self._stratum, task = draws
        self._pattern, n_patterns = patterns.of_task[task], len(patterns.counts)
        place = self._stratum * n_patterns + self._pattern
        n_tasks = np.bincount(place, minlength=n_strata * n_patterns).reshape(n_strata, n_patterns)
        self.n_drawn = n_tasks.sum(axis=1)  # (S,)
        super().__init__(patterns.counts, patterns.wanted, n_tasks, quorum, rule)

    def extremes(self, verdict: int) -> tuple[Floats, Floats]:
        """Return the minimum and maximum number of draws (S,) with a verdict. Unlabeled draws can get any verdict."""
        least, most = super().extremes(verdict)
        return least, most + self.n_drawn - self.n_tasks.sum(axis=1)

    @cached_property
    def accepted(self) -> VerdictSample:
        """Evidence for the verdict ACCEPTED, by draw (D,).

        The sum over the draws of a stratum is the stratum's sample.
        """
        return self.of_statements(self._stratum, self._pattern, ACCEPTED)


def drawn_verdicts(evidence: Evidence, patterns: Patterns | None = None, rule: VerdictRule = majority) -> DrawnVerdicts:
    """Return the verdicts of all draws. `patterns` defaults to the label patterns of the evidence."""
    draws = evidence.draws.stratum, evidence.draws.task
    return DrawnVerdicts(len(evidence.strata), draws, patterns or evidence.patterns, evidence.quorum, rule)


@dataclass(frozen=True)
class Cell:
    """A cell with the data of its strata.

    counts (s, 4): number of drawn statements by verdict, in the order of VERDICTS. samples: samples for the first three
    verdicts. accepted_at_least, accepted_at_most (s,): bounds on the accepted statements over all outcomes of
    incomplete statements. population (s,): population of each stratum, 0 if unknown. size (s,): relative size of each
    stratum, 0 if unknown. judge_labels (s,): label that the judge gave to all tuples of the stratum; empty unless
    strata are formed by judge label. design_effects: design effects (s,) of each verdict in `samples`. closed_at:
    half-width of the accuracy at which judging stopped; None if another rule applied, or if the average over several
    cells decided.
    """

    key: CellKey
    counts: Codes
    samples: Sequence[VerdictSample]
    accepted_at_least: Floats
    accepted_at_most: Floats
    population: Codes
    size: Floats
    ranks: Sequence[tuple[int | None, int | None]]
    judge_labels: Sequence[str]
    design_effects: Sequence[Floats]
    closed_at: float | None = None

    @property
    def n(self) -> int:
        """Number of statements with a verdict."""
        return int(self.counts[:, :INCOMPLETE].sum())

    def rate_of(self, verdict: int) -> Rate:
        """Return the share of one verdict in the population of the cell."""
        return joint_rate([self], verdict)

    @property
    def part_of_strata(self) -> Floats:
        """Shares of the strata in the population, (s,); 1 for a single stratum of unknown size."""
        return self.size / self.size.sum() if self.size.all() else np.ones(1)

    @property
    def has_shares(self) -> bool:
        """True if the shares of the strata in the population are known."""
        return len(self.size) == 1 or bool(self.size.all())

    def effective_sample(self, verdict: int) -> VerdictSample:
        """Return the evidence for a verdict in each stratum (s,), converted to statements of a simple random sample."""
        return self.samples[verdict].effective(self.design_effects[verdict])


def joint_rate(
    cells: Sequence[Cell], verdict: int, *, weights: Floats | None = None, closed_at: float | None = None
) -> Rate:
    """Return the share of a verdict in the joint population of the cells.

    weights: one weight per stratum, in the order of the cells. closed_at: half-width at which judging stopped.
    """
    sample, population = _joint_sample(cells, verdict)
    if len(cells) == 1:
        closed_at = cells[0].closed_at
        if weights is None and cells[0].has_shares and not population.all():
            weights = cells[0].part_of_strata
    rate = sample_rate(sample, population, weights)
    if closed_at is None or rate.low == rate.high:  # undefined, or a census
        return rate
    closing = closing_interval(sample, population, cells[0].part_of_strata if weights is None else weights, closed_at)
    if closing is None:
        return rate
    low, high = interval_at_stop(closing.center, max(closing.half_width, closed_at))
    return Rate(rate.value, float(low), float(high))


def macro_closing(cells: Sequence[Cell], margin: float) -> Closing | None:
    """Return the interval of the average accuracy over the cells that is compared with the margin."""
    weights = np.concatenate([cell.part_of_strata / len(cells) for cell in cells])
    return closing_interval(*_joint_sample(cells, ACCEPTED), weights, margin)


def _joint_sample(cells: Sequence[Cell], verdict: int) -> tuple[VerdictSample, Codes]:
    samples = (cell.effective_sample(verdict) for cell in cells)
    sample = VerdictSample(*map(np.concatenate, zip(*samples, strict=True)))
    return sample, np.concatenate([cell.population for cell in cells])


def cells_of(evidence: Evidence, drawn: DrawnVerdicts) -> list[Cell]:
    place = evidence.draws.stratum * len(VERDICTS) + evidence.verdict[evidence.draws.task]
    counts = np.bincount(place, minlength=len(evidence.strata) * len(VERDICTS)).reshape(-1, len(VERDICTS))
    samples = [drawn.of_groups(verdict) for verdict in range(INCOMPLETE)]
    at_least, at_most = drawn.extremes(ACCEPTED)
    effects = [evidence.effects(evidence.verdict == code, evidence.is_complete) for code in range(INCOMPLETE)]
    is_only = np.bincount(evidence.side_of_cell)[evidence.side_of_cell] == 1
    return [
        Cell(
            key=key,
            counts=counts[numbers],
            samples=[sample.at(numbers) for sample in samples],
            accepted_at_least=at_least[numbers],
            accepted_at_most=at_most[numbers],
            population=np.array([evidence.strata[number].population or 0 for number in numbers]),
            size=evidence.size_of_stratum[numbers],
            ranks=[evidence.strata[number][1:3] for number in numbers],
            judge_labels=[evidence.strata[number].judge_label for number in numbers],
            design_effects=[effect[numbers] for effect in effects],
            closed_at=evidence.closed_at if only else None,
        )
        for key, numbers, only in zip(evidence.cells, evidence.strata_of_cells, is_only.tolist(), strict=True)
    ]


def accuracies_of(evidence: Evidence, shares: Floats) -> Floats:
    """Return the accuracies of cells (C,), NaN if undefined. shares (S,): share of accepted tuples in each stratum."""
    size = np.where(evidence.size_of_stratum > 0, evidence.size_of_stratum, 1)
    hits = np.bincount(evidence.cell_of_stratum, size * shares, len(evidence.cells))
    return hits / np.bincount(evidence.cell_of_stratum, size, len(evidence.cells))


def ranked_strata(evidence: Evidence, drawn: DrawnVerdicts) -> RankedStrata:
    """Return the strata with their ranked draws. If the population of a stratum is unknown, its ranks are 0."""
    strata, draws = evidence.strata, evidence.draws
    has_rank = (draws.rank > 0) & (evidence.population_of_stratum[draws.stratum] > 0)
    task = draws.task[has_rank]
    clusters = None if evidence.cluster is None else (evidence.cluster[has_rank], evidence.verdict[task] == ACCEPTED)
    return RankedStrata(
        np.array([stratum.rank_from or 0 for stratum in strata], dtype=np.int64),
        np.array([stratum.rank_to or 0 for stratum in strata], dtype=np.int64),
        evidence.population_of_stratum.astype(np.int64),
        (draws.stratum[has_rank], draws.rank[has_rank], drawn.accepted.at(has_rank), evidence.is_complete[task]),
        members_of([stratum.ranks for stratum in strata]),
        clusters,
    )


def members_of(ranks: Sequence[Sequence[int] | None]) -> Members | None:
    """Return the tuples of the strata that store ranks, or None if no stratum stores ranks.

    ranks: one item per stratum.
    """
    if not any(ranks):
        return None
    sizes = [len(of_stratum or ()) for of_stratum in ranks]
    flat = np.array([rank for of_stratum in ranks for rank in of_stratum or ()], dtype=np.int64)
    return Members(np.repeat(np.arange(len(ranks)), sizes), flat)


# Comparisons of two sides by the statements drawn for each


# Compares two sides. The third argument is the evidence for the verdict ACCEPTED, by draw (D,). Returns None if the
# sides share no relation with verdicts in all strata.
CompareStatements = Callable[[Side, Side, VerdictSample], StatementDifference | None]


class SharedTasks(NamedTuple):
    """Statements drawn for both sides, with the draw and the stratum on each side. All arrays have shape (n,)."""

    draw_a: Codes
    draw_b: Codes
    stratum_a: Codes
    stratum_b: Codes


def statement_comparisons(evidence: Evidence) -> CompareStatements:
    strata_of = dict(zip(evidence.cells, evidence.strata_of_cells, strict=True))

    # A stratum needs a known size unless it is the only stratum of its cell.
    is_only = (np.bincount(evidence.cell_of_stratum) == 1)[evidence.cell_of_stratum]  # (S,)
    has_share = is_only | (evidence.size_of_stratum > 0)

    tasks_of = cache(partial(shared_tasks, evidence))

    def compare(a: Side, b: Side, accepted: VerdictSample) -> StatementDifference | None:
        accepted = evidence.effective(accepted)
        sample = accepted.summed(evidence.draws.stratum, len(evidence.strata))
        has_rate = (sample.n > 0) & has_share
        known_a, known_b = (
            {key.relation: strata for key, strata in strata_of.items() if key.side == side and has_rate[strata].all()}
            for side in (a, b)
        )
        cells = [(known_a[relation], known_b[relation]) for relation in sorted(known_a.keys() & known_b.keys())]
        if not cells:
            return None
        of_a, of_b = ([pair[side] for pair in cells] for side in (0, 1))
        shared = shared_between(tasks_of(a, b), accepted, np.concatenate(of_a), np.concatenate(of_b))
        return statement_difference(_side_sample(evidence, sample, of_a), _side_sample(evidence, sample, of_b), shared)

    return compare


def shared_tasks(evidence: Evidence, a: Side, b: Side) -> SharedTasks:
    side_of_draw = evidence.side_of_cell[evidence.cell_of_draw]
    of_a, of_b = (np.flatnonzero(side_of_draw == evidence.sides.index(side)) for side in (a, b))
    _, at_a, at_b = np.intersect1d(evidence.draws.task[of_a], evidence.draws.task[of_b], return_indices=True)
    draw_a, draw_b = of_a[at_a], of_b[at_b]
    return SharedTasks(draw_a, draw_b, evidence.draws.stratum[draw_a], evidence.draws.stratum[draw_b])


def _side_sample(evidence: Evidence, sample: VerdictSample, cells: Sequence[Codes]) -> SideSample:
    """Return the strata of one side's cells, with equal weight for each cell."""
    strata, sizes = np.concatenate(cells), [evidence.size_of_stratum[numbers] for numbers in cells]
    parts = [size / size.sum() if size.all() else np.ones(1) for size in sizes]
    return SideSample(
        sample.at(strata),
        evidence.population_of_stratum[strata].astype(np.int64),
        np.concatenate(parts) / len(cells),
        np.repeat(np.arange(len(cells)), [len(numbers) for numbers in cells]),
    )


def shared_between(tasks: SharedTasks, accepted: VerdictSample, of_a: Codes, of_b: Codes) -> SharedStatements:
    """Return the shared statements of the strata numbered `of_a` and `of_b`.

    The weight of a statement is the smaller of its weights on the two sides.
    """
    positions = []
    for strata, stratum in ((of_a, tasks.stratum_a), (of_b, tasks.stratum_b)):
        position = np.full(max(strata.max(), stratum.max(initial=0)) + 1, -1)
        position[strata] = np.arange(len(strata))
        positions.append(position[stratum])
    row, column = positions
    is_in = (row >= 0) & (column >= 0)
    sums = []
    for of_draw in (accepted.n, accepted.n_hits):
        matrix = np.zeros((len(of_a), len(of_b)))
        np.add.at(matrix, (row[is_in], column[is_in]), np.minimum(of_draw[tasks.draw_a], of_draw[tasks.draw_b])[is_in])
        sums.append(matrix)
    return SharedStatements(*sums)


def shared_statements(evidence: Evidence) -> dict[frozenset[Side], int]:
    """Return the number of shared statements with a verdict, for each pair of sides that shares any."""
    n_sides = len(evidence.sides)
    side = evidence.side_of_cell[evidence.cell_of_draw]  # (D,)
    drawn = np.unique(evidence.draws.task * n_sides + side)
    drawn = drawn[evidence.is_complete[drawn // n_sides]]
    task, side = drawn // n_sides, drawn % n_sides
    shared = np.zeros((n_sides, n_sides), dtype=np.int64)
    for distance in range(1, n_sides):
        is_same = task[distance:] == task[:-distance]
        if not is_same.any():
            break
        np.add.at(shared, (side[:-distance][is_same], side[distance:][is_same]), 1)
    return {
        frozenset((evidence.sides[a], evidence.sides[b])): int(shared[a, b])
        for a, b in zip(*np.nonzero(shared), strict=True)
    }
