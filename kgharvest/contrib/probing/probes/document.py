"""The document of a probe: methods side by side and per relation, computed from its records. Pure: no database.

docs/probing.md says what each key means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kgharvest.contrib.probing.probes.facts import RELATION_TYPES
from kgharvest.engine.prompt_learning.registry import METHODS
from kgharvest.statistics.paired_tests import PairedDifference, holm, paired_difference
from kgharvest.statistics.rates import macro_average, macro_interval

Record = Mapping[str, Any]  # the columns of a ProbeRecord, `relation` being its name
ByRelation = dict[str, Record]

BASELINE = "manual"
MEASURES = ("p1", "p10", "mrr", "nll", "dev_nll")


def probe_document(records: Iterable[Record], types: Mapping[str, str]) -> dict[str, Any]:
    """Return what all tables and figures of a probe are made of. types: of the relations, by name."""
    records = list(records)
    of_lm, of_control = (
        [record for record in records if record["is_control"] is is_control] for is_control in (False, True)
    )
    return {
        "summary": summary(of_lm),
        "control": summary(of_control),
        "types": type_rows(of_lm, types),
        "relations": [relation_entry(name, types[name], own) for name, own in group_by("relation", records).items()],
    }


def group_by(key: str, records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group `records` by a column, in the order in which its values come."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record[key], []).append(record)
    return groups


# -- methods side by side ----------------------------------------------------------------------------------------------


def summary(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return a row per method, in the order of `records`: macro averages over relations, P@1 over all facts, the cost.

    p1_low, p1_high: interval of the macro P@1 for relations like these, None below two or where all are alike.
    n_compared, difference, difference_low, difference_high, p, p_holm, reason: of the P@1 against the manual prompts,
    paired by relation as in reports; p by sign flips, adjusted by Holm over the methods; None where there is nothing
    to compare.
    """
    by_method = {
        method: {record["relation"]: record for record in own} for method, own in group_by("method", records).items()
    }
    differences = {method: against_baseline(method, by_method) for method in by_method}
    compared = {method: difference for method, difference in differences.items() if difference}
    adjusted = dict(zip(compared, holm([difference.p for difference in compared.values()]), strict=True))
    return [
        method_row(method, list(by_relation.values())) | difference_columns(differences[method], adjusted.get(method))
        for method, by_relation in by_method.items()
    ]


def method_row(method: str, records: Sequence[Record]) -> dict[str, Any]:
    low, high = macro_interval([record["p1"] for record in records])
    n_facts, forwards, seconds = (sum(record[name] for record in records) for name in ("n_test", "forwards", "seconds"))
    n_parameters = [record["n_parameters"] for record in records]
    return {
        "method": method,
        "n_relations": len(records),
        "n_facts": n_facts,
        **{measure: macro_average(record[measure] for record in records) for measure in MEASURES},
        "p1_low": low,
        "p1_high": high,
        "p1_micro": sum(record["p1"] * record["n_test"] for record in records) / n_facts,
        "n_parameters": max(n_parameters) if METHODS[method].is_joint else sum(n_parameters),
        "forwards": forwards,
        "seconds": round(seconds, 3),
        "forwards_per_second": forwards / seconds if forwards and seconds else None,
    }


def against_baseline(method: str, by_method: Mapping[str, ByRelation]) -> PairedDifference | None:
    baseline, records = by_method.get(BASELINE, {}), by_method[method]
    shared = [relation for relation in records if relation in baseline]
    if not shared or method == BASELINE:
        return None
    differences = np.array([records[relation]["p1"] - baseline[relation]["p1"] for relation in shared])
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
    by_type = {
        relation_type: [record for record in records if types[record["relation"]] == relation_type]
        for relation_type in RELATION_TYPES
    }
    return [
        {
            "type": relation_type,
            "n_relations": len({record["relation"] for record in of_type}),
            "p1": {
                method: macro_average(record["p1"] for record in own)
                for method, own in group_by("method", of_type).items()
            },
        }
        for relation_type, of_type in by_type.items()
        if of_type
    ]


def relation_entry(name: str, its_type: str, records: Sequence[Record]) -> dict[str, Any]:
    shared = {key: records[0][key] for key in ("n_train", "n_dev", "n_test", "left_out")}
    return {
        "relation": name,
        "type": its_type,
        **shared,
        "p1": {record["method"]: record["p1"] for record in records if not record["is_control"]},
        "control_p1": {record["method"]: record["p1"] for record in records if record["is_control"]},
    }
