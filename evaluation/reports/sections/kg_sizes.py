"""KG sizes: how many tuples each LM and setting has at the cuts of the paper's Table 2, how accurate, how many new."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

import numpy as np

from evaluation.evidence.arrays import Codes, Evidence, Side
from evaluation.evidence.cells import DrawnVerdicts, ranked_strata
from evaluation.rendering.tables import Column, Document, Kind, Row, Table, about_side, name_of
from evaluation.reports.sections.relation_tables import demonstrator_mark
from evaluation.statistics.cut_rates import RankedStrata

BASES = (10, 100)


def cut_entries(evidence: Evidence, drawn: DrawnVerdicts) -> list[dict[str, Any]]:
    """Return an entry per LM, setting and cut, for docs/report-json.md: a part of what was sampled, so estimable."""
    ranked = ranked_strata(evidence, drawn)
    job_of_stratum = np.array([stratum.job or 0 for stratum in evidence.strata], dtype=np.int64)
    n_kept: dict[str, dict[int, int]] = {
        **{
            f"base:{base}": {
                harvest.job: harvest.kept_by_base[base] for harvest in evidence.harvests if base in harvest.kept_by_base
            }
            for base in BASES
        },
        "share:0.5": {harvest.job: ceil(harvest.population / 2) for harvest in evidence.harvests},
        "all": {harvest.job: harvest.population for harvest in evidence.harvests},
    }
    jobs_of_side: dict[Side, list[int]] = {}
    for harvest in evidence.harvests:
        jobs_of_side.setdefault(harvest.side, []).append(harvest.job)
    return [
        {"model": model, "setting": setting, "cut": cut, **_cut_entry(own, ranked, job_of_stratum)}
        for (model, setting), jobs in jobs_of_side.items()
        for cut, sizes in n_kept.items()
        if (own := {job: sizes[job] for job in jobs if job in sizes})
    ]


def _cut_entry(n_kept: Mapping[int, int], ranked: RankedStrata, job_of_stratum: Codes) -> dict[str, Any]:
    """n_kept: tuples kept, by job."""
    strata = np.flatnonzero(np.isin(job_of_stratum, list(n_kept)))
    rate, parts = ranked.rate(strata, np.array([n_kept[job] for job in job_of_stratum[strata].tolist()], np.int64))
    return {
        "size": sum(n_kept.values()),
        "n_relations": len(n_kept),
        "n": int(parts.n.sum()),
        "accuracy": rate.value,
        "low": rate.low,
        "high": rate.high,
        "reason": rate.reason,
    }


def size_table(document: Document) -> Table:
    """How large the KG of each LM and setting is at several cuts, how much of it is true, and how much is new."""
    novelty = {(total["model"], total["setting"]): total for total in (document.get("novelty") or {}).get("totals", [])}
    rows = [
        Row((
            demonstrator_mark(document, cut["model"]),
            name_of(cut["setting"]),
            cut["cut"],
            cut["size"],
            cut["n_relations"],
            cut["accuracy"],
            cut["low"],
            cut["high"],
            cut["n"],
            novelty.get((cut["model"], cut["setting"]), {}).get("entity_novelty") if cut["cut"] == "all" else None,
        ), about=about_side(cut))
        for cut in document.get("cuts", [])
    ]  # fmt: skip
    columns = (
        Column("LM"),
        Column("setting"),
        Column("cut"),
        Column("tuples", Kind.COUNT),
        Column("relations", Kind.COUNT),
        Column("accuracy", Kind.SHARE),
        Column("low", Kind.SHARE),
        Column("high", Kind.SHARE),
        Column("judged", Kind.COUNT),
        Column("novelty", Kind.SHARE),
    )
    notes = (
        "Accuracy of all tuples that the cut keeps, each weighing the same, estimated from the judged ones among them; "
        "95 % interval. None where a part of a harvest that the cut keeps has no verdict.",
        "base-k keeps what is at least a tenth as probable as the k-th tuple of its relation. Relations where it "
        "reaches beyond what was sampled are left out.",
        _novelty_note(document),
    )
    return Table("sizes", "Size and accuracy of the KG", columns, tuple(rows), notes)


def _novelty_note(document: Document) -> str:
    novelty = document.get("novelty")
    if not novelty:
        return "Novelty needs a reference KG, which this report has none of."
    return f"Novelty: share of entities that {novelty['reference']['name']} does not hold, over the whole harvest."
