"""The evidence of a report, computed from rows: judgments of each statement, and the cells that drew it. No database.

Letters of shapes: T statements (gold left out), J counted judgments, A annotators, D draws, S strata, C cells, G
judgments of gold. Statements, annotators and strata are numbered from 0 in an order that does not change.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from evaluation.evidence.tables import COUNTED, EMPTY, EXCLUDED, GOLD, STATUSES, Columns, Rows
from kgharvest.harvests.cuts import parse_cut
from kgharvest.statistics.arrays import INCOMPLETE, LABELS, Codes, Flags, Floats
from kgharvest.statistics.paired_tests import CellKey, Side

BASES = (10, 100)  # k of the cuts base:k in Table 2


class StratumKey(NamedTuple):
    """A part of the cell number `cell`; the rest is None where nobody knows what was drawn from. job: its id.

    judge_label, ranks: as of `annotation.models.Stratum`.
    """

    cell: int
    rank_from: int | None
    rank_to: int | None
    population: int | None
    job: int | None = None
    judge_label: str = ""
    ranks: Sequence[int] | None = None


class Judgments(NamedTuple):
    """In the order of statements, then of annotators. seconds: NaN where nobody measured. All of shape (J,)."""

    task: Codes
    annotator: Codes
    label: Codes
    seconds: Floats


class ExcludedJudgments(NamedTuple):
    """What an excluded annotator had said that counted. Both of shape (E,)."""

    task: Codes
    label: Codes


class Conduct(NamedTuple):
    """What happened in the round.

    entry: the block `conduct` of docs/report-json.md, but for what rests on verdicts. excluded: by annotator's code.
    """

    entry: Mapping[str, Any]
    excluded: Mapping[str, ExcludedJudgments]


class Draws(NamedTuple):
    """rank: 0, and score: NaN, where the statement came without a harvest. All of shape (D,)."""

    task: Codes
    stratum: Codes
    rank: Codes
    score: Floats


class SampledHarvest(NamedTuple):
    """A harvest that strata were drawn from. population: how many of its best tuples were drawn from.

    kept_by_base: by k, how many tuples the cut base:k keeps; without those k that reach beyond the population.
    """

    job: int
    side: Side
    population: int
    kept_by_base: Mapping[int, int]


class Patterns(NamedTuple):
    """How many judgments of each label statements received, of how many they want.

    counts (P, 3), wanted (P,); of_task (T,): which pattern each statement shows; n_tasks (P,): how many show it.
    """

    counts: Codes
    wanted: Codes
    of_task: Codes
    n_tasks: Codes


@dataclass(frozen=True)
class Evidence:
    """verdict: (T,) as stored, by place in VERDICTS. adjudicated: (T,) an expert's, INCOMPLETE where there is none.

    cells: in the order of the report. annotators: codes, sorted.
    has_thirds: a third judgment was asked for only where the first two differed. third: (T,) who gave it, -1 where
    nobody did. wanted: (T,) how many judgments decide, those of excluded annotators included.
    quorum: how many judgments a verdict needs at least. gold: judgments of gold statements, whose numbers
    go on after those of the others; gold_truth: (number of gold statements,) TRUE or FALSE. demonstrators: LMs of the
    round whose quality says nothing about others. planned: the two sides of each comparison that was preregistered;
    None where nothing was.
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

    @property
    def n_tasks(self) -> int:
        return len(self.verdict)

    @cached_property
    def is_complete(self) -> Flags:
        is_complete: Flags = self.verdict != INCOMPLETE
        return is_complete

    @cached_property
    def first_two(self) -> Evidence:
        """Return the evidence without third judgments: with them, statements in dispute would count for more."""
        if not self.has_thirds:
            return self
        is_first = self.judgments.annotator != self.third[self.judgments.task]
        return replace(self, judgments=Judgments(*(column[is_first] for column in self.judgments)))

    @cached_property
    def n_adjudicated(self) -> int:
        return int(np.count_nonzero(self.is_complete & (self.adjudicated != INCOMPLETE)))

    @cached_property
    def counts(self) -> Codes:
        """Return (T, 3): the judgments of each label."""
        return label_counts(self.judgments, self.n_tasks)

    @cached_property
    def judgments_each(self) -> float:
        """Return how many judgments a statement with a verdict has on average; what was asked for where none has."""
        n_complete = np.count_nonzero(self.is_complete)
        return float(self.counts[self.is_complete].sum() / n_complete) if n_complete else self.judgments_per_task

    @cached_property
    def patterns(self) -> Patterns:
        return patterns_of(self.counts, self.wanted)

    @cached_property
    def cell_of_stratum(self) -> Codes:
        return np.array([stratum.cell for stratum in self.strata], dtype=np.int64)  # (S,)

    @cached_property
    def strata_of_cells(self) -> list[Codes]:
        """Return the numbers of each cell's strata, ascending."""
        order = np.argsort(self.cell_of_stratum, kind="stable")
        edges = np.searchsorted(self.cell_of_stratum[order], np.arange(1, len(self.cells)))
        return np.split(order, edges)[: len(self.cells)]

    @cached_property
    def population_of_stratum(self) -> Floats:
        """Return (S,): how many tuples each stratum was drawn from, 0 where nobody knows."""
        return np.array([stratum.population or 0 for stratum in self.strata], dtype=np.float64)

    @cached_property
    def sides(self) -> list[Side]:
        """Return each LM and setting, in the order in which they first appear."""
        return list(dict.fromkeys(cell.side for cell in self.cells))

    @cached_property
    def side_of_cell(self) -> Codes:
        return np.array([self.sides.index(cell.side) for cell in self.cells], dtype=np.int64)  # (C,)

    @cached_property
    def cell_of_draw(self) -> Codes:
        return self.cell_of_stratum[self.draws.stratum]  # (D,)


def label_counts(judgments: Judgments, n_tasks: int) -> Codes:
    """Return (T, 3)."""
    pair = judgments.task * len(LABELS) + judgments.label
    return np.bincount(pair, minlength=n_tasks * len(LABELS)).reshape(n_tasks, len(LABELS))


def patterns_of(counts: Codes, wanted: Codes) -> Patterns:
    """Return the patterns of statements with `counts` (T, 3) of labels that want `wanted` (T,) judgments."""
    rows = np.column_stack([counts, np.maximum(wanted, counts.sum(axis=1))])
    base = int(rows.max(initial=0)) + 1
    place = np.array([base**3, base**2, base, 1])
    codes, of_task, n_tasks = np.unique(rows @ place, return_inverse=True, return_counts=True)
    distinct = codes[:, None] // place % base
    return Patterns(distinct[:, :3], distinct[:, 3], of_task.reshape(-1), n_tasks)


def changed_patterns(patterns: Patterns, tasks: Codes, counts: Codes, wanted: Codes) -> tuple[Patterns, Codes]:
    """Return what `patterns_of` would once `tasks`, different ones, have `counts` (n, 3) and want `wanted` (n,).

    Its of_task is of these tasks only. With it (P,): the new number of each pattern before, -1 where none is left.
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


# From rows


ASKED_IF_SPLIT = 3  # judgments of a statement on which the first two differ
IS_EXCLUDED = "excluded"  # status of an annotator


def evidence_of_rows(rows: Rows, rules: Mapping[str, Any]) -> Evidence:
    """rules: of `evaluation.evidence.rows.rules_of_round`. Verdicts are those of the rows."""
    statements, given, draws, annotators = (rows[name] for name in ("statements", "judgments", "draws", "annotators"))
    n_tasks = int(np.count_nonzero(~statements["is_gold"]))
    is_in = np.array([status != IS_EXCLUDED for status in annotators["status"]], dtype=np.bool_)
    counted = _judgments(given, given["status"] == COUNTED)
    present = np.unique(counted.annotator)
    new_number = np.full(len(is_in), -1)
    new_number[present] = np.arange(len(present))
    # Gold judgments never count, so all current ones are used, except those of excluded annotators.
    is_in &= new_number >= 0
    gold = _judgments(given, (given["status"] == GOLD) & is_in[given["annotator"]])
    third = np.full(n_tasks, -1)
    if rules["has_thirds"]:
        task, annotator = _third_judgments(given)
        third[task] = new_number[annotator]
    # Labels and the verdicts that an expert gives with them have the same codes.
    codes = (statements[name][:n_tasks] for name in ("verdict", "adjudication"))
    verdict, adjudicated = (np.where(column == EMPTY, INCOMPLETE, column) for column in codes)
    strata = rows["strata"]
    keys = list(map(CellKey, strata["relation"], strata["model"], strata["setting"]))
    names = ("round", "source", "seed", "judgments_per_task", "quorum", "has_thirds", "demonstrators")
    return Evidence(
        **{name: rules[name] for name in names},
        verdict=verdict,
        adjudicated=adjudicated,
        third=third,
        wanted=np.maximum(statements["n_wanted"][:n_tasks], rules["least_k"]),
        judgments=counted._replace(annotator=new_number[counted.annotator]),
        cells=list(dict.fromkeys(keys)),
        strata=stratum_keys(strata),
        draws=Draws(draws["statement"] - 1, draws["stratum"] - 1, draws["rank"], draws["score"]),
        annotators=[annotators["annotator"][number] for number in present.tolist()],
        gold=gold._replace(annotator=new_number[gold.annotator]),
        gold_truth=statements["gold_label"][n_tasks:],
        harvests=sampled_harvests(rows["harvests"]),
    )


def _judgments(given: Columns, chosen: Flags) -> Judgments:
    names = ("statement", "annotator", "label", "seconds")
    task, annotator, label, seconds = (given[name][chosen] for name in names)
    order = np.lexsort((annotator, task))
    return Judgments(task[order] - 1, annotator[order], label[order], seconds[order])


def _third_judgments(given: Columns) -> tuple[Codes, Codes]:
    """Return the tasks with a judgment that was asked for because two differed, and its annotator.

    Of three annotators whose judgments count, the one who judged last for the first time: a change of mind keeps its
    place. As `annotation.judging.third_judgments.third_annotators`.
    """
    n = int(given["annotator"].max(initial=0)) + 1
    pair = (given["statement"] - 1) * n + given["annotator"]
    distinct, first = np.unique(pair, return_index=True)
    is_counted = np.isin(distinct, pair[given["status"] == COUNTED])
    in_order = distinct[is_counted][np.argsort(first[is_counted])]
    task, annotator = in_order // n, in_order % n
    last = len(task) - 1 - np.unique(task[::-1], return_index=True)[1]
    last = last[np.bincount(task)[task[last]] == ASKED_IF_SPLIT]
    return task[last], annotator[last]


def stratum_keys(strata: Columns) -> list[StratumKey]:
    """Return the strata, cells numbered in the order in which they first appear."""
    keys = list(zip(strata["relation"], strata["model"], strata["setting"], strict=True))
    number = {key: position for position, key in enumerate(dict.fromkeys(keys))}
    names = ("harvest", "rank_from", "rank_to", "population", "judge_label", "ranks")
    columns = (strata[name] for name in names)
    return [
        StratumKey(number[key], first, last, population, job, judge_label or "", ranks and json.loads(ranks))
        if job
        else StratumKey(number[key], None, None, None)
        for key, job, first, last, population, judge_label, ranks in zip(keys, *columns, strict=True)
    ]


def sampled_harvests(harvests: Columns) -> list[SampledHarvest]:
    names = ("harvest", "model", "setting", "last_rank", "kept_by_base")
    return [
        SampledHarvest(job, Side(model, setting), last_rank, {k: n for k, n in kept.items() if n <= last_rank})
        for job, model, setting, last_rank, kept in zip(*(harvests[name] for name in names), strict=True)
    ]


def conduct_of_rows(rows: Rows, quota: int | None, facts: Mapping[str, Any], evidence: Evidence) -> Conduct:
    """facts: of `evaluation.evidence.rows.conduct_facts`; the rest of the block is counted from the rows."""
    given, annotators = rows["judgments"], rows["annotators"]
    n_of_status = np.bincount(given["status"], minlength=len(STATUSES)).tolist()
    gold = rows["statements"]["gold_label"][rows["statements"]["is_gold"]].tolist()
    statuses: Counter[str] = Counter(annotators["status"])
    blocked = {line["annotator"] for line in facts["timeline"] if line["kind"] == "limit_crossed"}
    people = {
        "n_judged": len(np.unique(given["annotator"])),
        "n_counted": len(np.unique(given["annotator"][given["status"] == COUNTED])),
        "n_blocked_by_limits": len(blocked),
        "n_joined": len(annotators["status"]),
        "n_trained": sum(annotators["is_trained"]),
        "n_excluded": statuses[IS_EXCLUDED],
        "n_paused": statuses["paused"],
        "n_with_full_share": sum(quota is not None and n_judged >= quota for n_judged in annotators["n_judged"]),
    }
    judgments = {"n_given": sum(n_of_status)}
    judgments |= {f"n_{status}": n for status, n in zip(STATUSES, n_of_status, strict=True)}
    entry = {
        **{name: facts[name] for name in ("dates", "design", "limits")},
        "people": facts["people"] | people,
        "training": facts["training"],
        "gold": {"n_true": gold.count(0), "n_false": gold.count(1)} | facts["gold"],
        "judgments": judgments | facts["judgments"],
        "adjudications": {"n_statements": int(np.count_nonzero(rows["statements"]["adjudication"] != EMPTY))}
        | facts["adjudications"],
        **{name: facts[name] for name in ("exclusions", "imports", "timeline")},
        "cells": cell_entries(evidence, rows),
    }
    excluded = {}
    for number, code in enumerate(annotators["annotator"]):
        if annotators["status"][number] == IS_EXCLUDED:
            own = (given["annotator"] == number) & (given["status"] == EXCLUDED)
            if own.any():
                excluded[code] = ExcludedJudgments(given["statement"][own] - 1, given["label"][own])
    return Conduct(entry, excluded)


BY_LENGTH = ("top", "share")  # cuts that the length of a harvest decides alone
HARVEST = ("origin", "revision", "dtype", "device", "harvested_at", "code_version")
FRAME = ("cut", "kept", "left_out", "hidden", "sensitive", "population")


def cell_entries(evidence: Evidence, rows: Rows) -> list[dict[str, Any]]:
    """Return an entry per cell, in the order of the evidence: `cells` of `conduct` in docs/report-json.md."""
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
        known = dict.fromkeys(("job", *HARVEST, "harvested", *FRAME))
        if job is not None:
            harvest = {name: column[place[job]] for name, column in harvests.items()}
            population = sum(stratum.population or 0 for stratum in strata)
            last_rank = max(stratum.rank_to or 0 for stratum in strata)
            kept = n_kept(harvest["n_tuples"], harvest["cut"] or "", last_rank)
            known |= {name: harvest[name] for name in HARVEST}
            known |= {"job": harvest["fingerprint"], "harvested": harvest["n_tuples"], "cut": harvest["cut"]}
            known |= {"kept": kept, "left_out": kept - population, "population": population}
            known |= {name: sum(rank <= kept for rank in harvest[name]) for name in ("hidden", "sensitive")}
        entries.append({
            **key._asdict(), **known, "n_strata": len(strata), "drawn": int(n_drawn[numbers].sum()),
            "n_prompts": len(prompts[job]), "prompts": prompts[job],
        })  # fmt: skip
    return entries


def n_kept(n_tuples: int, cut: str, last_rank: int) -> int:
    """Return how many tuples the cut keeps; if scores decide that, up to the last rank that was drawn from."""
    if not cut:
        return n_tuples
    parsed = parse_cut(cut)
    return parsed.size(range(n_tuples)) if parsed.kind in BY_LENGTH else last_rank
