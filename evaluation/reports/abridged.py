"""The part of a report's document that pages and figures lay out: a tenth of it where there are many relations."""

from __future__ import annotations

from typing import Any

from evaluation.rendering.figures.calibration import calibrated
from evaluation.rendering.figures.size_curves import size_curves
from evaluation.rendering.tables import Document
from evaluation.reports.sections.quality_tables import MOST_ANNOTATORS_IN_MATRIX

SHOWN_OF_A_CELL = (
    "relation", "model", "setting", "n", "accepted", "rejected", "undecided", "incomplete",
    "accuracy", "accuracy_low", "accuracy_high", "rejection", "reason",
)  # fmt: skip


def abridged(document: Document) -> dict[str, Any]:
    """Return the document without what only files hold; pages and figures of it are those of the whole."""
    curves = [*size_curves(document), *calibrated(document)]
    return {
        **document,
        "cells": [{key: cell[key] for key in SHOWN_OF_A_CELL if key in cell} for cell in document["cells"]],
        "curves": curves,
        "comparisons": [_without(comparison, "relations") for comparison in document["comparisons"]],
        "sensitivity": _without(document.get("sensitivity") or {}, "cells"),
        "annotator_pairs": _pairs(document),
    }


def _without(entry: Document, name: str) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != name}


def _pairs(document: Document) -> list[Any]:
    """Too many for a table are one, so that the page can say that there are some."""
    fit = len(document["annotators"]) <= MOST_ANNOTATORS_IN_MATRIX
    return document["annotator_pairs"] if fit else document["annotator_pairs"][:1]
