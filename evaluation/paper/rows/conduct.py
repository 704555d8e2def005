"""What happened in a round, from the raw rows of a pack, as `evaluation.evidence.conduct` gathers it.

What rows tell is counted from them; the rest is repeated from `round.json`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from annotation.models import Annotator
from evaluation.evidence.arrays import Evidence, ExcludedJudgments
from evaluation.evidence.queries import LABEL_CODES
from evaluation.evidence.sampling_frame import FRAME, HARVEST, frame_entry
from evaluation.paper.rows.evidence import Facts, places_of_harvests, whole
from evaluation.paper.rows.gathering import COUNTED, EXCLUDED, GOLD, HIDDEN, LATE, SENSITIVE, SUPERSEDED
from evaluation.paper.rows.tables import Columns, PackRows, n_rows


def conduct_of(rows: PackRows, facts: Facts, evidence: Evidence) -> dict[str, Any]:
    """Return the entry of `evaluation.evidence.conduct.gather_conduct`: what rows tell is counted from them."""
    told = facts["conduct"]
    statements, status = rows["statements"], Counter(rows["judgments"]["status"])
    gold = Counter(statements["gold_label"])
    counts = {f"n_{name}": status[name] for name in (SUPERSEDED, GOLD, COUNTED, EXCLUDED, LATE)}
    n_adjudicated = sum(label is not None for label in statements["adjudication"])
    return {
        **told,
        "dates": told["dates"] | _judged_between(rows["judgments"]["judged_at"]),
        "people": _people(rows, facts),
        "gold": {"n_true": gold["true"], "n_false": gold["false"]} | told["gold"],
        "judgments": {"n_given": status.total(), **counts} | told["judgments"],
        "adjudications": {"n_statements": n_adjudicated} | told["adjudications"],
        "cells": _sampled_cells(rows, evidence),
    }


def _judged_between(times: Sequence[Any]) -> dict[str, str | None]:
    first, last = (limit(times).isoformat(timespec="seconds") if times else None for limit in (min, max))
    return {"first_judgment_at": first, "last_judgment_at": last}


def _people(rows: PackRows, facts: Facts) -> dict[str, int]:
    annotators, judgments, quota = rows["annotators"], rows["judgments"], facts["quota"]
    status = Counter(annotators["status"])
    said = list(zip(judgments["annotator"], judgments["status"], strict=True))
    blocked = {line["annotator"] for line in facts["conduct"]["timeline"] if line["kind"] == "limit_crossed"}
    return {
        **facts["conduct"]["people"],
        "n_joined": n_rows(annotators),
        "n_trained": list(annotators["is_trained"]).count(True),
        "n_judged": len({code for code, _ in said}),
        "n_counted": len({code for code, status in said if status == COUNTED}),
        "n_excluded": status[Annotator.Status.EXCLUDED],
        "n_paused": status[Annotator.Status.PAUSED],
        "n_blocked_by_limits": len(blocked),
        "n_with_full_share": sum(quota is not None and n >= quota for n in annotators["n_judged"]),
    }


def excluded_judgments_of(rows: PackRows) -> dict[str, ExcludedJudgments]:
    annotators = zip(rows["annotators"]["annotator"], rows["annotators"]["status"], strict=True)
    excluded = {code for code, status in annotators if status == Annotator.Status.EXCLUDED}
    said: dict[str, list[tuple[int, int]]] = {}
    names = ("annotator", "status", "statement", "label")
    for code, status, statement, label in zip(*(rows["judgments"][name] for name in names), strict=True):
        if status == EXCLUDED and code in excluded:
            said.setdefault(code, []).append((statement - 1, LABEL_CODES[label]))
    return {code: ExcludedJudgments(*whole(own).T) for code, own in said.items()}


def _sampled_cells(rows: PackRows, evidence: Evidence) -> list[dict[str, Any]]:
    """Return what `evaluation.evidence.sampling_frame.sampled_cells` gathers from the database."""
    harvests, prompts, places = rows["harvests"], _prompts(rows["prompts"]), places_of_harvests(rows)
    n_drawn = np.bincount(evidence.draws.stratum, minlength=len(evidence.strata)).tolist()
    entries = []
    for number, key in enumerate(evidence.cells):
        own = [position for position, stratum in enumerate(evidence.strata) if stratum.cell == number]
        strata = [evidence.strata[position] for position in own]
        known, harvest = dict.fromkeys((*HARVEST, *FRAME)), strata[0].job
        if harvest is not None:
            made = {name: harvests[name][harvest - 1] for name in harvests}
            ranks = (_left_out(rows["harvested"], places[harvest], kind) for kind in (HIDDEN, SENSITIVE))
            known = {
                **made,
                "job": made["fingerprint"],
                "harvested": made["n_tuples"],
                **frame_entry(made["n_tuples"], made["cut"] or "", strata, *ranks),
            }
            known = {name: known[name] for name in (*HARVEST, *FRAME)}
        own_prompts = prompts.get(harvest, [])
        entries.append({
            **key._asdict(), **known, "n_strata": len(own), "drawn": sum(n_drawn[position] for position in own),
            "n_prompts": len(own_prompts), "prompts": own_prompts,
        })  # fmt: skip
    return entries


def _left_out(harvested: Columns, place: slice, kind: str) -> list[int]:
    own = zip(harvested["rank"][place], harvested["left_out"][place], strict=True)
    return [rank for rank, left_out in own if left_out == kind]


def _prompts(prompts: Columns) -> dict[int, list[dict[str, Any]]]:
    by_harvest: dict[int, list[dict[str, Any]]] = {}
    columns = (prompts[name] for name in ("harvest", "text", "origin", "weight"))
    for harvest, text, origin, weight in zip(*columns, strict=True):
        by_harvest.setdefault(harvest, []).append({"text": text, "origin": origin, "weight": weight})
    return by_harvest
