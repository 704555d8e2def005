"""Probe an LM with prompt systems on known facts, LAMA's way, and put the results side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from evaluation.metrics.comparisons import N_RESAMPLES, PairedDifference, holm, paired_difference
from evaluation.metrics.intervals import macro_average
from kgharvest.embedded_lm.world import load_world
from kgharvest.errors import DomainError
from kgharvest.models import Relation

if TYPE_CHECKING:
    from kgharvest.engine.language_models.masked import MaskedLM
    from kgharvest.engine.probing import ProbeScores
    from kgharvest.engine.prompts.methods import Budget, Learned, ProbeTask

PARTS = ("train", "dev", "test")
METHODS = ("majority", "manual", "lpaqa-top1", "lpaqa-rank", "lpaqa", "autoprompt", "soft", "soft-deep", "bertese")
Pairs = tuple[tuple[str, str], ...]


class NotProbed(DomainError):
    """Facts that cannot be read, or an LM or a relation that cannot be probed."""


@dataclass(frozen=True)
class ProbeRelation:
    """A binary relation with facts in three parts. prompts: the one that people wrote first."""

    name: str
    prompts: tuple[str, ...]
    facts: Mapping[str, Pairs]


# -- what is asked -----------------------------------------------------------------------------------------------------


def probe_relations(relations: Sequence[Relation], facts: Path | None, prompts: Path | None) -> list[ProbeRelation]:
    """Return the binary ones of `relations` that have facts: in `facts`/NAME/{train,dev,test}.jsonl, or in the world.

    prompts: a folder with NAME.jsonl of {"template": "[X] ... [Y]"}, besides their own. Raises NotProbed.
    """
    found = [
        ProbeRelation(relation.name, prompts_of(relation, prompts), known)
        for relation in relations
        if relation.arity == 2 and (known := facts_of(relation, facts))
    ]
    if not found:
        lacking = f"{facts} has no folder with {', '.join(PARTS)}.jsonl" if facts else "The embedded world has no facts"
        raise NotProbed(f"{lacking} for any of these relations; name a folder whose folders bear their names.")
    return found


def facts_of(relation: Relation, folder: Path | None) -> Mapping[str, Pairs] | None:
    if folder is None:
        return split_world().get(relation.name)
    files = {part: folder / relation.name / f"{part}.jsonl" for part in PARTS}
    if not all(path.is_file() for path in files.values()):
        return None
    return {part: tuple(read_facts(path)) for part, path in files.items()}


def read_facts(path: Path) -> Iterator[tuple[str, str]]:
    return ((line["sub"], line["obj"]) for line in read_lines(path, ("sub", "obj")))


def split_world() -> dict[str, Mapping[str, Pairs]]:
    """Return the facts of the embedded LMs' world by relation: two fifths, one fifth and two fifths, at random."""
    worlds = {}
    for relation in load_world():
        facts = list(relation.facts)
        Random(0).shuffle(facts)
        first, second = 2 * len(facts) // 5, 3 * len(facts) // 5
        parts = facts[:first], facts[first:second], facts[second:]
        worlds[relation.name] = dict(zip(PARTS, map(tuple, parts), strict=True))
    return worlds


def prompts_of(relation: Relation, folder: Path | None) -> tuple[str, ...]:
    texts = [*relation.initial_prompts, *relation.prompts]
    path = folder / f"{relation.name}.jsonl" if folder else None
    if path and path.is_file():
        texts += [
            line["template"].replace("[X]", "<ENT0>").replace("[Y]", "<ENT1>")
            for line in read_lines(path, ("template",))
        ]
    return tuple(dict.fromkeys(texts))


def read_lines(path: Path, keys: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file. Raises NotProbed with the line that is not one with `keys`."""
    with path.open(encoding="utf-8") as file:
        for number, text in enumerate(file, start=1):
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            if not isinstance(line, dict) or not all(isinstance(line.get(key), str) for key in keys):
                raise NotProbed(f"{path}, line {number}: not an object with the text {' and '.join(keys)}; mend it.")
            yield line


# -- asking ------------------------------------------------------------------------------------------------------------


def probe_records(
    lm: MaskedLM,
    control: MaskedLM | None,
    relations: Sequence[ProbeRelation],
    methods: Sequence[str],
    budget: Budget,
    on_method: Callable[[str], None] = lambda method: None,
) -> Iterator[dict[str, Any]]:
    """Yield one record per method and relation. control: the same LM before any training, which knows nothing."""
    tasks = [probe_task(lm, relation) for relation in relations]
    for method in methods:
        on_method(method)
        measured = list(measure(lm, method, tasks, budget))
        known = [scores for _, scores, _ in measure(control, method, tasks, budget)] if control else [None] * len(tasks)
        for task, (learned, scores, cost), forgotten in zip(tasks, measured, known, strict=True):
            yield (
                record(lm, method, task, learned, scores)
                | cost
                | {
                    "seed": budget.seed,
                    "control_p1": forgotten.precision_at(1) if forgotten else None,
                }
            )


def probe_task(lm: MaskedLM, relation: ProbeRelation) -> ProbeTask:
    """Raises NotProbed if nothing can be learned or asked."""
    from kgharvest.engine.probing import Fact, usable_facts
    from kgharvest.engine.prompts.methods import ProbeTask
    from kgharvest.engine.prompts.template import parse_prompts

    encoded = tuple(lm.encode_prompt(template) for template in parse_prompts(relation.prompts, 2))
    facts = {part: usable_facts(lm, [Fact(*pair) for pair in relation.facts[part]]) for part in PARTS}
    for part, usable in facts.items():
        if not usable.facts:
            reasons = ", ".join(f"{n} {reason}" for reason, n in usable.left_out.items()) or "it is empty"
            raise NotProbed(f"{relation.name}: no fact of {part} can be asked ({reasons}); give others.")
    return ProbeTask(relation.name, encoded[0], encoded, **facts)


def measure(
    lm: MaskedLM, method: str, tasks: Sequence[ProbeTask], budget: Budget
) -> Iterator[tuple[Learned, ProbeScores, dict[str, Any]]]:
    """Yield what the method learned of each task, how it does on the test facts, and what that took."""
    from kgharvest.engine.probing import probe
    from kgharvest.engine.prompts.methods import BERTESE, learn

    groups = [tasks] if method == BERTESE else [[task] for task in tasks]
    for group in groups:
        start, before = perf_counter(), lm.n_read["sequences"]
        learned = learn(lm, method, group, budget)
        cost = {
            "forwards": (lm.n_read["sequences"] - before) // len(group),
            "seconds": round((perf_counter() - start) / len(group), 3),
        }
        for task, one in zip(group, learned, strict=True):
            dev = probe(one.answerer, task.dev).nll
            yield one, probe(one.answerer, task.test), cost | {"dev_nll": dev}


def record(lm: MaskedLM, method: str, task: ProbeTask, learned: Learned, scores: ProbeScores) -> dict[str, Any]:
    return {
        "method": method,
        "lm": lm.name,
        "relation": task.relation,
        "n_train": len(task.train.facts),
        "n_dev": len(task.dev.facts),
        "n_test": scores.n,
        "left_out": task.test.left_out,
        "vocab": "full",
        "p1": scores.precision_at(1),
        "p10": scores.precision_at(10),
        "mrr": scores.mrr,
        "nll": scores.nll,
        "n_prompts": len(learned.weights),
        "effective_prompts": round(learned.effective_prompts, 3) if learned.weights else None,
        "n_parameters": learned.n_parameters,
        "prompts": [{"text": text, "weight": weight} for text, weight in learned.prompts],
    }


# -- side by side ------------------------------------------------------------------------------------------------------

BASELINE = "manual"
MEASURES = ("p1", "p10", "mrr", "dev_nll", "control_p1")


def summary(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per method, in the order of `records`: macro averages over relations, P@1 over all facts, the cost.

    p1_low, p1_high: bootstrap interval of the macro P@1, over relations. difference, difference_low, difference_high,
    p: of the P@1 against the manual prompts, paired by relation; p by sign flips, adjusted by Holm over the methods.
    """
    by_method: dict[str, dict[str, Mapping[str, Any]]] = {}
    for record in records:
        by_method.setdefault(record["method"], {})[record["relation"]] = record
    rows = [method_row(method, list(found.values())) for method, found in by_method.items()]
    differences = {method: against_baseline(found, by_method) for method, found in by_method.items()}
    known = {method: one for method, one in differences.items() if one}
    adjusted = dict(zip(known, holm([one.p for one in known.values()]), strict=True))
    return [row | difference_columns(known.get(row["method"]), adjusted.get(row["method"])) for row in rows]


def method_row(method: str, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    low, high = bootstrap_of_mean([one["p1"] for one in records])
    n_facts = sum(one["n_test"] for one in records)
    return {
        "method": method,
        "n_relations": len(records),
        "n_facts": n_facts,
        **{measure: macro_average(one[measure] for one in records) for measure in MEASURES},
        "p1_low": low,
        "p1_high": high,
        "p1_micro": sum(one["p1"] * one["n_test"] for one in records) / n_facts,
        "n_parameters": sum(one["n_parameters"] for one in records),
        "forwards": sum(one["forwards"] for one in records),
        "seconds": round(sum(one["seconds"] for one in records), 3),
    }


def bootstrap_of_mean(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the 95 % percentile interval of the mean over relations; None with fewer than three of them."""
    if len(values) < 3:
        return None, None
    draws = np.random.default_rng(0).choice(np.array(values), size=(N_RESAMPLES, len(values))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975]).tolist()
    return low, high


def against_baseline(
    found: Mapping[str, Mapping[str, Any]], by_method: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> PairedDifference | None:
    baseline = by_method.get(BASELINE, {})
    shared = [name for name in found if name in baseline]
    if not shared or found is baseline:
        return None
    differences = np.array([found[name]["p1"] - baseline[name]["p1"] for name in shared])
    return paired_difference(differences, np.random.default_rng(0))


def difference_columns(difference: PairedDifference | None, p: float | None) -> dict[str, Any]:
    return {
        "difference": difference.difference if difference else None,
        "difference_low": difference.low if difference else None,
        "difference_high": difference.high if difference else None,
        "p": p,
    }
