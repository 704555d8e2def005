"""What a probe found as one JSON document, computed from its records. Pure: no database, no clock.

docs/probing.md says what each key means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.statistics.paired_tests import N_RESAMPLES, PairedDifference, holm, paired_difference
from evaluation.statistics.rates import macro_average
from kgharvest.engine.prompt_learning.registry import METHODS
from probing.probes.facts import RELATION_TYPES

Record = Mapping[str, Any]  # the columns of a ProbeRecord, `relation` being its name
ByRelation = dict[str, Record]

BASELINE = "manual"
MEASURES = ("p1", "p10", "mrr", "nll", "dev_nll")
LEAST_FOR_AN_INTERVAL = 3  # relations


def probe_document(records: Iterable[Record], types: Mapping[str, str]) -> dict[str, Any]:
    """Return what all tables and figures of a probe are made of. types: of the relations, by name."""
    records = list(records)
    of_lm, of_control = ([one for one in records if one["is_control"] is control] for control in (False, True))
    return {
        "summary": summary(of_lm),
        "control": summary(of_control),
        "types": type_rows(of_lm, types),
        "relations": [relation_entry(name, types[name], found) for name, found in by("relation", records).items()],
    }


def by(key: str, records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group `records` by a column, in the order in which its values come."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record[key], []).append(record)
    return groups


# -- methods side by side ----------------------------------------------------------------------------------------------


def summary(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return a row per method, in the order of `records`: macro averages over relations, P@1 over all facts, the cost.

    p1_low, p1_high: bootstrap interval of the macro P@1, over relations. n_compared, difference, difference_low,
    difference_high, p, p_holm, reason: of the P@1 against the manual prompts, paired by relation; p by sign flips,
    adjusted by Holm over the methods; None where there is nothing to compare.
    """
    by_method = {
        method: {record["relation"]: record for record in found} for method, found in by("method", records).items()
    }
    differences = {method: against_baseline(method, by_method) for method in by_method}
    known = {method: one for method, one in differences.items() if one}
    adjusted = dict(zip(known, holm([one.p for one in known.values()]), strict=True))
    return [
        method_row(method, list(found.values())) | difference_columns(differences[method], adjusted.get(method))
        for method, found in by_method.items()
    ]


def method_row(method: str, records: Sequence[Record]) -> dict[str, Any]:
    low, high = bootstrap_of_mean([one["p1"] for one in records])
    n_facts, forwards, seconds = (sum(one[name] for one in records) for name in ("n_test", "forwards", "seconds"))
    return {
        "method": method,
        "n_relations": len(records),
        "n_facts": n_facts,
        **{measure: macro_average(one[measure] for one in records) for measure in MEASURES},
        "p1_low": low,
        "p1_high": high,
        "p1_micro": sum(one["p1"] * one["n_test"] for one in records) / n_facts,
        "n_parameters": n_parameters(method, records),
        "forwards": forwards,
        "seconds": round(seconds, 3),
        "forwards_per_second": forwards / seconds if forwards and seconds else None,
    }


def n_parameters(method: str, records: Iterable[Record]) -> int:
    counts = [one["n_parameters"] for one in records]
    return max(counts) if METHODS[method].is_joint else sum(counts)


def bootstrap_of_mean(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the 95 % percentile interval of the mean over relations; None with fewer than three of them."""
    if len(values) < LEAST_FOR_AN_INTERVAL:
        return None, None
    draws = np.random.default_rng(0).choice(np.array(values), size=(N_RESAMPLES, len(values))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975]).tolist()
    return low, high


def against_baseline(method: str, by_method: Mapping[str, ByRelation]) -> PairedDifference | None:
    baseline, found = by_method.get(BASELINE, {}), by_method[method]
    shared = [name for name in found if name in baseline]
    if not shared or method == BASELINE:
        return None
    differences = np.array([found[name]["p1"] - baseline[name]["p1"] for name in shared])
    return paired_difference(differences, np.random.default_rng(0))


def difference_columns(difference: PairedDifference | None, p_holm: float | None) -> dict[str, Any]:
    if difference is None:
        return dict.fromkeys(("n_compared", "difference", "difference_low", "difference_high", "p", "p_holm", "reason"))
    return {
        "n_compared": difference.n_relations,
        "difference": difference.difference,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "p": difference.p,
        "p_holm": p_holm,
        "reason": difference.reason,
    }


# -- relations ---------------------------------------------------------------------------------------------------------


def type_rows(records: Iterable[Record], types: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a row for each type of relations that there is: the macro P@1 of each method over them."""
    of_type = {kind: [one for one in records if types[one["relation"]] == kind] for kind in RELATION_TYPES}
    return [
        {
            "type": kind,
            "n_relations": len({one["relation"] for one in found}),
            "p1": {
                method: macro_average(one["p1"] for one in theirs) for method, theirs in by("method", found).items()
            },
        }
        for kind, found in of_type.items()
        if found
    ]


def relation_entry(name: str, its_type: str, records: Sequence[Record]) -> dict[str, Any]:
    shared = {key: records[0][key] for key in ("n_train", "n_dev", "n_test", "left_out")}
    return {
        "relation": name,
        "type": its_type,
        **shared,
        "p1": {one["method"]: one["p1"] for one in records if not one["is_control"]},
        "control_p1": {one["method"]: one["p1"] for one in records if one["is_control"]},
    }
