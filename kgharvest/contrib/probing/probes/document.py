"""Probe document: comparison of methods, in total and per relation, computed from records without a database.

docs/probing.md describes its keys.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kgharvest.contrib.probing.probes.facts import RELATION_TYPES
from kgharvest.contrib.probing.prompt_learning.registry import METHODS
from kgharvest.statistics.paired_tests import PairedDifference, holm, mcnemar_p, paired_difference
from kgharvest.statistics.rates import macro_average, macro_interval

Record = Mapping[str, Any]  # columns of a ProbeRecord; `relation` is the relation's name

BASELINE = "manual"
SLOTS = {"subjects": 0, "objects": 1}
MEASURES = ("p1", "p10", "mrr", "nll", "dev_nll")


def probe_document(records: Iterable[Record], types: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of all tables and figures of a probe. types: relation types by name."""
    records = list(records)
    lm_records, control_records = (
        [record for record in records if record["is_control"] is is_control] for is_control in (False, True)
    )
    return {
        "summary": summary(lm_records),
        "comparisons": fact_comparisons(lm_records),
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

    p1_low, p1_high: interval of the macro P@1, if the relations are a sample of similar relations; None if there are
    fewer than two values, or all are equal. n_compared, difference, difference_low, difference_high, p, p_holm, reason:
    difference in P@1 from the manual prompts, paired by relation; None if the method cannot be compared with them. p is
    from a sign-flip test; p_holm is adjusted over methods.
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
        **{
            f"{measure}_micro": sum(record[measure] * record["n_test"] for record in records) / n_facts
            for measure in ("p1", "p10", "mrr")
        },
        "parts_of_speech": sum((Counter(record.get("parts_of_speech")) for record in records), Counter()),
        "n_parameters": max(n_parameters) if METHODS[method].is_joint else sum(n_parameters),
        "forwards": forwards,
        "seconds": round(seconds, 3),
        "forwards_per_second": forwards / seconds if forwards and seconds else None,
    }


def fact_comparisons(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return one row per method with micro averages, compared with two methods by sign tests over test facts.

    baseline, n_better, n_worse, difference, p: comparison with the method's baseline if the probe has it, otherwise
    with the manual prompts. best, p_best: the method with the most correct answers, and the comparison with it. None if
    the methods do not share all facts. p is exact, two-sided, and 1 if both methods answer the same facts correctly.
    """
    ranks = {
        method: {record["relation"]: record["ranks"] for record in rows}
        for method, rows in group_by("method", records).items()
    }
    correct = {
        method: np.array(
            [rank == 1 for relation in sorted(by_relation) for rank in by_relation[relation]], dtype=np.bool_
        )
        for method, by_relation in ranks.items()
    }
    sizes = {name: {relation: len(values) for relation, values in ranks[name].items()} for name in ranks}
    best = max(correct, key=lambda method: correct[method].sum(), default="")
    rows = []
    for method, answers in correct.items():
        others = {name for name in ranks if name != method and sizes[name] == sizes[method]}
        baseline = next((name for name in (METHODS[method].baseline, BASELINE) if name in others), None)
        row: dict[str, Any] = {"method": method, "n_facts": len(answers), "baseline": baseline, "best": best}
        row |= dict.fromkeys(("n_better", "n_worse", "difference", "p", "p_best"))
        if baseline and len(answers):
            row["n_better"], row["n_worse"], row["p"] = _sign_test(answers, correct[baseline])
            row["difference"] = (row["n_better"] - row["n_worse"]) / len(answers)
        if best in others:
            *_, row["p_best"] = _sign_test(answers, correct[best])
        rows.append(row)
    return rows


def _sign_test(answers: NDArray[np.bool_], others: NDArray[np.bool_]) -> tuple[int, int, float]:
    """Return the numbers of facts that only the first and only the second method answers correctly, and p."""
    n_better, n_worse = int((answers & ~others).sum()), int((others & ~answers).sum())
    p = mcnemar_p(n_better, n_worse)
    return n_better, n_worse, 1.0 if p is None else p


def statistics(relations: Sequence[Any], records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return statistics over relations: facts, given prompts by origin, and the effective prompts of each method.

    relations: instances of ProbedRelation. See Tables 7, 8, and 10 of Qin & Eisner (2021).
    """
    facts = [{tuple(pair) for pairs in relation.facts.values() for pair in pairs} for relation in relations]
    rows = [spread("facts", "relations", map(len, facts))]
    for name, slot in SLOTS.items():
        rows.append(spread(name, "relations", (len({pair[slot] for pair in pairs}) for pairs in facts)))
    prompts = {"given": [relation.prompts for relation in relations]}
    for origin in dict.fromkeys(origin for relation in relations for origin in relation.origins):
        prompts[origin] = [relation.origins[origin] for relation in relations if origin in relation.origins]
    for origin, sets in prompts.items():
        rows.append(spread(f"{origin} prompts", "relations", map(len, sets)))
        rows.append(
            spread(f"words of {origin} prompts", "prompts", (len(text.split()) for texts in sets for text in texts))
        )
    for method, group in group_by("method", (record for record in records if not record["is_control"])).items():
        if max(record["n_prompts"] for record in group) > 1:
            effective = (record["effective_prompts"] for record in group)
            rows.append(spread(f"effective prompts of {method}", "relations", effective))
    return rows


def spread(name: str, of: str, values: Iterable[float]) -> dict[str, Any]:
    """Return the number of values, and their mean, sample standard deviation, minimum, and maximum, or None."""
    numbers = np.array([*values], dtype=np.float64)
    if not len(numbers):
        return {"name": name, "of": of, "n": 0, **dict.fromkeys(("mean", "sd", "min", "max"))}
    sd = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
    low, high = (float(limit) for limit in (numbers.min(), numbers.max()))
    return {"name": name, "of": of, "n": len(numbers), "mean": float(numbers.mean()), "sd": sd, "min": low, "max": high}


def type_rows(records: Iterable[Record], types: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return one row per relation type that occurs: the macro P@1 of each method over the relations of the type."""
    rows = []
    for relation_type in RELATION_TYPES:
        if selected := [record for record in records if types[record["relation"]] == relation_type]:
            by_method = group_by("method", selected).items()
            p1 = {method: macro_average(record["p1"] for record in group) for method, group in by_method}
            n_relations = len({record["relation"] for record in selected})
            rows.append({"type": relation_type, "n_relations": n_relations, "p1": p1})
    return rows
