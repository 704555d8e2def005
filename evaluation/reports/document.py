"""The report of a round as one JSON document, computed from its evidence. Pure: no database, no clock.

docs/report-json.md says what each key means.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from evaluation.evidence.arrays import UNJUDGEABLE, Evidence
from evaluation.reports.sections.agreement import parts_of_agreement, whole_agreement
from evaluation.reports.sections.annotators import annotator_entries, fit_models, model_entries, pair_entries
from evaluation.reports.sections.comparisons import METHOD_OF_COMPARISONS, comparison_entries
from evaluation.reports.sections.curves import curve_entries
from evaluation.reports.sections.rates import cell_entry, cells_of, total_entries
from evaluation.reports.sections.sample_size import planner_entry
from evaluation.reports.sections.sensitivity import sensitivity_entry

METHOD = (
    "Verdict: accepted if more than half of a statement's judgments are True, rejected if more than half are False, "
    "else undecided; incomplete statements are left out. "
    "Accuracy and rejection: shares of a cell's own draws that have a verdict, with 95 % Wilson intervals. A cell "
    "sampled in several strata of ranks: stratified mean (Horvitz and Thompson over the known population), Wilson's "
    "interval on the effective size with finite population correction (after Korn and Graubard), at most 1.25 times "
    "the size of a simple sample. "
    "Macro averages: mean over relations; interval for relations like these: Student's t over relations; for these "
    "relations: from the sampling within each. All statements together: not weighted by the sizes of the harvests that "
    "they were drawn from, and therefore without an interval; weighted accuracy: each relation weighs as many tuples "
    "as it was drawn from. "
    "Accuracy against size: Hajek's estimate over the draws of the best ranks, Wilson's interval on Kish's effective "
    "size. "
    "Agreement: Krippendorff's alpha, nominal, over statements with two or more judgments; interval: 2.5 % and 97.5 % "
    "quantiles of 5,000 bootstrap resamples of statements, 1,000 for a part of them. Percent agreement: share of "
    "agreeing pairs of judgments. Fleiss' kappa: over all statements, where each has the same number of judgments. "
    "Verdict stability: beta-binomial panels with the observed share of accepted statements and alpha of True against "
    "the rest. "
    "Models of annotators: Dawid and Skene (1979) and MACE (Hovy et al. 2013), fitted by EM to all judgments but "
    "Unjudgeable; McNemar's exact test against the majority on gold statements. "
    f"{METHOD_OF_COMPARISONS} "
    "Intervals of single relations: Newcombe's method 10; for these relations: the same from both averages. "
    "Planner: half an interval takes four times the statements; relations to tell two sides apart from the paired t "
    "test, two-sided .05, power .8."
)


def build_document(evidence: Evidence) -> dict[str, Any]:
    """Return the report's JSON. The same evidence gives the same document: the bootstrap is seeded by the round."""
    cells = cells_of(evidence, evidence.verdict)
    totals = total_entries(evidence, cells)
    comparisons = comparison_entries(evidence, cells, evidence.verdict)
    models = fit_models(evidence)
    return {
        "round": evidence.round,
        "source": evidence.source,
        "demonstrators": list(evidence.demonstrators),
        "seed": evidence.seed,
        "judgments_per_task": evidence.judgments_per_task,
        "n_tasks": evidence.n_tasks,
        "n_complete": int(evidence.is_complete.sum()),
        "n_judgments": len(evidence.judgments.task),
        "n_adjudicated": evidence.n_adjudicated,
        **whole_agreement(evidence),
        "agreement": list(parts_of_agreement(evidence)),
        "cells": [cell_entry(cell) for cell in cells],
        "totals": totals,
        "curves": curve_entries(evidence, evidence.verdict),
        "comparisons": comparisons,
        "sensitivity": sensitivity_entry(evidence, models),
        "annotators": annotator_entries(evidence, models),
        "annotator_pairs": pair_entries(evidence),
        "annotator_models": model_entries(evidence, models),
        "planner": planner_entry(totals, comparisons, evidence.judgments_each),
        "novelty": None,
        "notes": list(_notes(evidence)),
    }


def _notes(evidence: Evidence) -> Iterable[str]:
    """Yield what a reader of the numbers must know, one sentence each."""
    if evidence.source == "simulated":
        yield "The judgments are simulated, not people: they say nothing about what is true."
    if evidence.source == "imported":
        yield "The judgments were imported."
    if alone := int((evidence.counts.sum(axis=1) < evidence.quorum)[evidence.is_complete].sum()):
        yield (
            f"{alone} of {evidence.n_tasks} statements have a single judgment. A verdict needs two that agree, so "
            "these are undecided, whatever was said: the shares say little."
        )
    yield from _degenerate(evidence)
    if evidence.demonstrators:
        names = ", ".join(evidence.demonstrators)
        yield f"Demonstrator: the accuracy of {names} says nothing about other LMs."
    if open_tasks := evidence.n_tasks - int(evidence.is_complete.sum()):
        yield f"{open_tasks} of {evidence.n_tasks} statements are incomplete and left out of the rates."
    if evidence.has_thirds:
        yield (
            "A third judgment was asked for only where two differed. Verdicts are as with three; agreement is that of "
            "the first two judgments of each statement, as with the third, statements in dispute would count for more "
            "than others."
        )


def _degenerate(evidence: Evidence) -> Iterable[str]:
    """Yield what makes verdicts say less than they seem to."""
    counts = evidence.counts[evidence.is_complete]
    n_judgments = counts.sum(axis=1)
    if not len(counts):
        return
    if evidence.quorum == 1 and (n_judgments == 1).all():
        yield "Every statement has a single judgment: its verdict is one person's word, which nobody has confirmed."
    if not counts[:, :UNJUDGEABLE].any():
        yield "Every judgment is Unjudgeable: nothing was decided, so accuracy and rejection are 0 whatever is true."
    if n_tied := int(np.count_nonzero(2 * counts.max(axis=1) == n_judgments)):
        yield (
            f"{n_tied} of {len(counts)} statements are tied: an even number of judgments, half of them alike and half "
            "not. Ties are undecided."
        )
