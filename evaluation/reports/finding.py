"""What a report says first, in a few sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluation.rendering.documents import ORIGINS, Document, lm_and_setting
from evaluation.reports.sections.comparisons import sides_of
from evaluation.reports.sections.ranks import rank_in_words, ranks_of, ties_in_words
from evaluation.reports.sections.rates import interval_of_average
from kgharvest.pages.number_format import counted, p_value, share_with_interval
from kgharvest.statistics.rates import SIGNIFICANCE
from kgharvest.statistics.sides import Side


def finding(document: Document) -> str:
    """Return what the report says first: the side with the largest average, and which ranks it may have."""
    totals = [total for total in document["totals"] if total["macro_accuracy"] is not None]
    if not totals:
        return "No statement has a verdict yet."
    best, *others = sorted(totals, key=lambda total: -total["macro_accuracy"])
    n_relations = counted(best["n_relations"], "relation")
    origin = f"{ORIGINS[document['source']].capitalize()}: " if document["source"] in ORIGINS else ""
    if not others:
        return f"{origin}{_share_of(best)} of what {lm_and_setting(best)} says is true, on average over {n_relations}."
    found = (
        f"{origin}{lm_and_setting(best)} is the most accurate of {len(totals)} in the sample: {_share_of(best)} is "
        f"true on average over {n_relations}. Next is {lm_and_setting(others[0])} with {_share_of(others[0])}"
    )
    pair = {Side(total["model"], total["setting"]) for total in (best, others[0])}
    compared = next((entry for entry in document["comparisons"] if set(sides_of(entry)) == pair), None)
    if compared is None:
        return f"{found}.{_rank_of(document, best)}"
    is_significant = compared["p_holm"] is not None and compared["p_holm"] < SIGNIFICANCE
    verdict = "significant" if is_significant else "not significant"
    return (
        f"{found}; the difference is {verdict} (p after Holm: {p_value(compared['p_holm'])}).{_rank_of(document, best)}"
    )


def _share_of(total: Mapping[str, Any]) -> str:
    return share_with_interval(total["macro_accuracy"], *interval_of_average(total))


def _rank_of(document: Document, best: Mapping[str, Any]) -> str:
    """Return where the side with the largest average may stand; empty where ranks are not known."""
    sides = ranks_of(document)["sides"]
    own = next((s for s in sides if (s["model"], s["setting"]) == (best["model"], best["setting"])), None)
    if own is None:
        return ""
    tied = ties_in_words(own, len(sides))
    return f" Its rank among {len(sides)} is {rank_in_words(own)} (95 %), tied with {tied}."
