"""Probe document: comparison of methods, in total and per relation, computed from records without a database.

docs/probing.md describes its keys.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kgharvest.contrib.probing.probes.facts import RELATION_TYPES
from kgharvest.engine.prompt_learning.registry import METHODS
from kgharvest.statistics.paired_tests import PairedDifference, holm, paired_difference
from kgharvest.statistics.rates import macro_average, macro_interval

Record = Mapping[str, Any]  # columns of a ProbeRecord; `relation` is the relation's name

BASELINE = "manual"
MEASURES = ("p1", "p10", "mrr", "nll", "dev_nll")


def probe_document(records: Iterable[Record], types: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of all tables and figures of a probe. types: relation types by name."""
    records = list(records)
    lm_records, control_records = (
        [record for record in records if record["is_control"] is is_control] for is_control in (False, True)
    )
    return {
        "summary": summary(lm_records),
        "control": summary(control_records),
        "types": type_rows(lm_records, types),
        "relations": [
            {
                "relation": name,
                "type": types[name],
                **{key: rows[0][key] for key in ("n_train", "n_dev", "n_test", "left_out")},
                "p1": {record["method"]: record["p1"] for record in rows if not record["is_control"]},
                "control_p1": {record["method"]: record["p1"] for record in rows if record["is_control"]},
            }
            for name, rows in group_by("relation", records).items()
        ],
    }


def group_by(key: str, records: Iterable[Record]) -> dict[str, list[Record]]:
    """Group `records` by a column, in order of first occurrence."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record[key], []).append(record)
    return groups


def summary(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return one row per method, in order of `records`: macro averages over relations, P@1 over all facts, and cost.

    p1_low, p1_high: interval of the macro P@1 over similar relations; None if there are fewer than two values, or all
    are equal. n_compared, difference, difference_low, difference_high, p, p_holm, reason: difference in P@1 from the
    manual prompts, paired by relation. p is from a sign-flip test; p_holm is adjusted over methods. None without a
    comparison.
    """
    by_method = {
        method: {record["relation"]: record for record in rows} for method, rows in group_by("method", records).items()
    }
    baseline = by_method.get(BASELINE, {})
    differences: dict[str, PairedDifference] = {}
    for method, by_relation in by_method.items():
        shared = [relation for relation in by_relation if relation in baseline]
        if shared and method != BASELINE:
            values = np.array([by_relation[relation]["p1"] - baseline[relation]["p1"] for relation in shared])
            differences[method] = paired_difference(values, np.random.default_rng(0))
    rows = {method: method_row(method, list(by_relation.values())) for method, by_relation in by_method.items()}
    names = ("n_compared", "difference", "difference_low", "difference_high", "p", "p_holm", "reason")
    for row in rows.values():
        row.update(dict.fromkeys(names))
    adjusted = holm([difference.p for difference in differences.values()])
    for (method, d), p_holm in zip(differences.items(), adjusted, strict=True):
        columns = (d.n_relations, d.difference, d.low, d.high, d.p, p_holm, d.reason)
        rows[method].update(zip(names, columns, strict=True))
    return list(rows.values())


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


def type_rows(records: Iterable[Record], types: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return one row per relation type that occurs: the macro P@1 of each method over its relations."""
    rows = []
    for relation_type in RELATION_TYPES:
        if selected := [record for record in records if types[record["relation"]] == relation_type]:
            by_method = group_by("method", selected).items()
            p1 = {method: macro_average(record["p1"] for record in group) for method, group in by_method}
            n_relations = len({record["relation"] for record in selected})
            rows.append({"type": relation_type, "n_relations": n_relations, "p1": p1})
    return rows
