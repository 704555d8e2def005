"""Handwritten report documents in the format of docs/report-json.md, for tests of report layout."""

from __future__ import annotations

from collections.abc import Mapping

from kgharvest.statistics.rates import rate

Counts = tuple[int, int, int, int]  # accepted, rejected, undecided, incomplete
NO_ALPHA = {"value": None, "low": None, "high": None, "n_units": 0, "reason": "No statement has two judgments."}
ALPHA = {"value": 0.4567, "low": 0.39, "high": 0.55, "n_units": 20, "reason": None}

THREE_CELLS = {
    ("can_do", "big", "human"): (5, 4, 1, 0),
    ("can_do", "big", "multi"): (8, 2, 0, 0),
    ("capital", "small", "multi"): (10, 0, 0, 0),
}
TWO_SETTINGS = {
    ("r", "big", "human"): (2, 8, 0, 0),
    ("r", "big", "multi"): (8, 2, 0, 0),
    ("s", "big", "human"): (3, 7, 0, 0),
    ("s", "big", "multi"): (4, 6, 0, 0),
}


def make_document(cells: Mapping[tuple, Counts] = THREE_CELLS, **fields) -> dict:
    entries = [{**dict(zip(("relation", "model", "setting"), key, strict=True)), **rates(*cells[key])} for key in cells]
    n_complete = sum(entry["n"] for entry in entries)
    document = {
        "round": "pilot_1",
        "source": "people",
        "seed": 0,
        "n_tasks": n_complete + sum(entry["incomplete"] for entry in entries),
        "n_complete": n_complete,
        "n_judgments": 3 * n_complete,
        "alpha": ALPHA if n_complete else NO_ALPHA,
        "alpha_without_unjudgeable": ALPHA if n_complete else NO_ALPHA,
        "percent_agreement": 0.8 if n_complete else None,
        "fleiss_kappa": {"value": None, "reason": "Statements have unequal numbers of judgments."},
        "cells": entries,
        "totals": totals(entries),
        "comparisons": [],
        "annotators": [],
        "annotator_pairs": [],
        "notes": [],
        "created_at": "2026-01-02T03:04:05+00:00",
        "code_version": "1.0",
        "method": "Verdict: accepted if more than half of a statement's judgments are True.",
    }
    if fields.get("source") == "simulated":
        document["notes"] = [
            "The judgments are simulated, not made by people: the rates are not evidence about the truth of the tuples."
        ]
    return {**document, **fields}


def rates(accepted: int, rejected: int, undecided: int = 0, incomplete: int = 0) -> dict:
    n = accepted + rejected + undecided
    accuracy, rejection = rate(accepted, n), rate(rejected, n)
    return {
        "n": n,
        "accepted": accepted,
        "rejected": rejected,
        "undecided": undecided,
        "incomplete": incomplete,
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "rejection": rejection.value,
    }


def totals(entries: list[dict]) -> list[dict]:
    """Return one entry per LM and setting: rates over all statements, and means over relations."""
    sides = []
    for model, setting in dict.fromkeys((entry["model"], entry["setting"]) for entry in entries):
        selected = [entry for entry in entries if (entry["model"], entry["setting"]) == (model, setting)]
        counts = [
            sum(entry[name] for entry in selected) for name in ("accepted", "rejected", "undecided", "incomplete")
        ]
        judged = [entry for entry in selected if entry["n"]]
        macro = {
            f"macro_{share}": sum(entry[share] for entry in judged) / len(judged) if judged else None
            for share in ("accuracy", "rejection")
        }
        sides.append({"model": model, "setting": setting, **rates(*counts), **macro, "n_relations": len(judged)})
    return sides


def make_comparison(**fields) -> dict:
    comparison = {
        "kind": "settings",
        "model": "big",
        "a": "human",
        "b": "multi",
        "n_relations": 2,
        "difference": -0.35,
        "low": None,
        "high": None,
        "p_sign_flip": 0.5,
        "p_holm": 0.5,
        "sentence": "With big, human and multi are not distinguishable: 35.0 points in favor of multi.",
    }
    return {**comparison, **fields}


def make_annotator(code: str = "Ann", **fields) -> dict:
    return {"annotator": code, "n_judgments": 4, "true": 1, "false": 2, "unjudgeable": 1, **fields}
