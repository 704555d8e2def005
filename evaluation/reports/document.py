"""The report of a round as one JSON document, and the tables that it holds. Pure: no database, no clock.

docs/report-json.md says what each key means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from evaluation.evidence.cells import cells_of, drawn_verdicts, ranked_strata
from evaluation.evidence.evidence import Conduct, Evidence, conduct_of_rows, evidence_of_rows
from evaluation.evidence.judges import (
    JudgeAnswers,
    JudgedStrata,
    JudgedTuples,
    judge_answers_of_rows,
    judged_tuples_of_rows,
)
from evaluation.evidence.tables import Rows
from evaluation.rendering.documents import ORIGINS, Document, lm_and_setting
from evaluation.reports.report_sections import Facts, report_sections
from evaluation.reports.sections import (
    agreement,
    annotators,
    assisted_rates,
    comparisons,
    conduct,
    curves,
    judge_card,
    modelled_rates,
    rates,
    sample_size,
    sensitivity,
)
from evaluation.reports.sections.comparisons import rank_in_words, ranks_of, sides_of, ties_in_words
from evaluation.reports.sections.rates import interval_of_average
from kgharvest.pages.number_format import counted, p_value, share_with_interval
from kgharvest.statistics.arrays import UNJUDGEABLE
from kgharvest.statistics.paired_tests import MARGIN, Side
from kgharvest.statistics.rates import SIGNIFICANCE
from kgharvest.statistics.verdicts import MOST_WANTED
from kgharvest.tables.table import Table, without_empty_columns

METHOD = " ".join([
    "Verdict: accepted if more than half of a statement's judgments are True, rejected if more than half are False, "
    "else undecided. Incomplete statements count with the probability of each verdict given their labels (missing at "
    "random, shares of the complete patterns of labels by EM); where the labels do not tell a share, its interval goes "
    "from the worst to the best that they can become.",
    *(
        rates.METHOD, modelled_rates.METHOD, curves.METHOD, agreement.METHOD, annotators.METHOD, comparisons.METHOD,
        comparisons.RANK_METHOD, sample_size.METHOD, modelled_rates.EVERY_LOOK_METHOD, conduct.METHOD,
        assisted_rates.METHOD, judge_card.METHOD,
    ),
])  # fmt: skip

# For people, in reading order. Tables of REPORT_SECTIONS come before the comparisons.
TABLES = (
    rates.relation_table,
    rates.setting_table,
    rates.model_table,
    modelled_rates.corrected_table,
    modelled_rates.pooled_table,
    curves.size_table,
    comparisons.comparison_table,
    comparisons.rank_table,
    comparisons.relation_rank_table,
    agreement.agreement_table,
    agreement.agreement_parts_table,
    annotators.annotator_table,
    annotators.pair_table,
    annotators.annotator_model_table,
    sensitivity.sensitivity_table,
    sensitivity.leave_one_out_table,
    sensitivity.sensitive_comparison_table,
    sensitivity.leave_one_out_comparison_table,
    sensitivity.rule_table,
    sample_size.plan_table,
    modelled_rates.every_look_table,
    assisted_rates.assisted_table,
    assisted_rates.assisted_comparison_table,
    *judge_card.TABLES,
    conduct.flow_table,
    conduct.exclusion_table,
    conduct.exclusion_effect_table,
    conduct.design_table,
    conduct.timeline_table,
    conduct.sampling_table,
    conduct.harvest_table,
    conduct.prompt_table,
)
# For programs: people would drown in them.
LISTS = (
    rates.cell_table,
    sensitivity.sensitive_cell_table,
    curves.size_curve_table,
    curves.calibration_table,
    conduct.sampling_cell_table,
    assisted_rates.assisted_cut_table,
)


def document_of_rows(
    rows: Rows, facts: Mapping[str, Any], section_facts: Mapping[str, Facts] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the report's JSON, the same for rows of the database and for those of a file.

    facts: rules, `equivalence_margin`, and the facts under `conduct` that no row contains. section_facts: of the
    sections in REPORT_SECTIONS, by key.
    """
    evidence = evidence_of_rows(rows, facts)
    happened = conduct_of_rows(rows, facts["quota"], facts["conduct"], evidence)
    answers = judged = None
    if rows["judge_runs"]:
        answers, judged = judge_answers_of_rows(rows, evidence), judged_tuples_of_rows(rows, evidence)
    return build_document(evidence, facts["equivalence_margin"], happened, answers, judged, section_facts)


def build_document(
    evidence: Evidence,
    equivalence_margin: float = MARGIN,
    happened: Conduct | None = None,
    answers: JudgeAnswers | None = None,
    judged_tuples: JudgedTuples | None = None,
    section_facts: Mapping[str, Facts] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the report's JSON. The same evidence gives the same document: the bootstrap is seeded by the round.

    equivalence_margin: at most how far apart two sides are to count as alike, as a share. happened: in the round.
    answers, judged_tuples: of the judge that the report was asked for, on statements and on all tuples. section_facts:
    of the sections in REPORT_SECTIONS, by key.
    """
    sections = [(section, facts) for section in report_sections() if (facts := section_facts.get(section.key))]
    for section, facts in sections:
        evidence = section.prepared(evidence, facts)
    drawn = drawn_verdicts(evidence)
    cells, ranked = cells_of(evidence, drawn), ranked_strata(evidence, drawn)
    conducted = conduct.conduct_entry(evidence, happened, drawn) if happened else None
    judged = JudgedStrata(evidence, drawn, judged_tuples) if judged_tuples else None
    totals = rates.total_entries(evidence, cells)
    compared = comparisons.comparison_entries(evidence, cells, drawn, equivalence_margin)
    models = annotators.fit_models(evidence)
    correction = modelled_rates.correct_for_errors(evidence)
    modelled = modelled_rates.with_modelled_rates(rates.cell_entries(cells), evidence, cells, correction)
    at_every_look = modelled_rates.every_look_entries(evidence, modelled, *(judged.groups() if judged else ()))
    averages = modelled_rates.with_corrected_averages(totals, evidence, cells, correction)
    averages = modelled_rates.with_every_look_averages(averages, at_every_look, evidence, judged)
    document = {
        "round": evidence.round,
        "source": evidence.source,
        "demonstrators": list(evidence.demonstrators),
        "seed": evidence.seed,
        "judgments_per_task": evidence.judgments_per_task,
        "equivalence_margin": equivalence_margin,
        "n_tasks": evidence.n_tasks,
        "n_complete": int(evidence.is_complete.sum()),
        "n_judgments": len(evidence.judgments.task),
        "n_adjudicated": evidence.n_adjudicated,
        **agreement.agreement_entries(evidence),
        "agreement": agreement.agreement_part_entries(evidence),
        "annotator_errors": modelled_rates.correction_entry(correction),
        "cells": assisted_rates.with_assisted_rates(at_every_look, evidence, judged) if judged else at_every_look,
        "totals": assisted_rates.with_assisted_averages(averages, evidence, judged) if judged else averages,
        "curves": curves.curve_entries(evidence, ranked, drawn.accepted, judged),
        "comparisons": compared,
        "ranks": comparisons.rank_entry(evidence, modelled, drawn),
        "sensitivity": sensitivity.sensitivity_entry(evidence, drawn, models),
        "annotators": annotators.annotator_entries(evidence, models),
        "annotator_pairs": annotators.pair_entries(evidence),
        "annotator_models": annotators.model_entries(evidence, models),
        "planner": sample_size.plan_entry(totals, cells, compared, evidence.judgments_each),
        "judge": assisted_rates.judge_entry(evidence, drawn, judged) if judged else None,
        "judge_card": judge_card.card_entry(evidence, answers) if answers else None,
        "novelty": None,
        "conduct": conducted,
        "notes": [*_notes(evidence), *(conduct.notes_on_conduct(conducted) if conducted else ())],
        "cuts": curves.cut_entries(evidence, ranked, judged),
    }
    return document | {section.key: section.entry(document, facts) for section, facts in sections}


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
    draws = evidence.draws
    strata = np.unique(draws.stratum[(draws.rank > 0) & np.isnan(draws.score)])
    sides = {evidence.cells[cell].side for cell in evidence.cell_of_stratum[strata].tolist()}
    if unscored := sorted(f"{side.model} × {side.setting}" for side in sides):
        yield (
            f"{', '.join(unscored)}: the harvests have no scores and rank in the order of the imported file. There is "
            "no accuracy by score and no cut that needs scores; their best parts are the first of the file."
        )
    if open_tasks := evidence.n_tasks - int(evidence.is_complete.sum()):
        yield (
            f"{open_tasks} of {evidence.n_tasks} statements are incomplete. Which they are may depend on the answers, "
            "so they are not left out: each counts with the verdicts that its labels make likely, and the intervals "
            "are wider for it; those without a judgment say nothing. Each cell with such statements tells its accuracy "
            "if all that is still open were rejected, or accepted."
        )
    is_open = ~evidence.is_complete & evidence.counts.any(axis=1)
    if n_many := int(np.count_nonzero(is_open & (evidence.wanted > MOST_WANTED))):
        yield (
            f"{n_many} of these want more than {MOST_WANTED} judgments; they count with the verdict of those they have."
        )
    if evidence.has_thirds:
        yield (
            "A third judgment was asked for only where two differed. Verdicts are as with three; agreement is that of "
            "the first two judgments of each statement, as with the third, statements in dispute would count for more "
            "than others."
        )


def _degenerate(evidence: Evidence) -> Iterable[str]:
    """Yield the reasons why verdicts say less than they seem to."""
    counts = evidence.counts[evidence.is_complete]
    n_judgments = counts.sum(axis=1)
    if len(counts) and evidence.quorum == 1 and (n_judgments == 1).all():
        yield "Every statement has a single judgment: its verdict is one person's word, which nobody has confirmed."
    if len(counts) and not counts[:, :UNJUDGEABLE].any():
        yield "Every judgment is Unjudgeable: nothing was decided, so accuracy and rejection are 0 whatever is true."
    if n_tied := int(np.count_nonzero(2 * counts.max(axis=1, initial=0) == n_judgments)):
        yield (
            f"{n_tied} of {len(counts)} statements are tied: an even number of judgments, half of them alike and half "
            "not. Ties are undecided."
        )


# -- tables, and what pages show --------------------------------------------------------------------------------------


def report_tables(document: Document) -> list[Table]:
    """Return every table that has a row; what rests on no people says so in its caption."""
    return tables_of((*tables_for_people(), *LISTS), document)


def tables_to_read(document: Document) -> list[Table]:
    """Return what people read: without the long lists, and without columns that say nothing."""
    return [without_empty_columns(table) for table in tables_of(tables_for_people(), document)]


def tables_for_people() -> list[Callable[[Document], Table]]:
    """Return TABLES with the tables of REPORT_SECTIONS."""
    tables: list[Callable[[Document], Table]] = [*TABLES]
    place = tables.index(comparisons.comparison_table)
    tables[place:place] = [table for section in report_sections() for table in section.tables]
    return tables


def tables_of(builders: Iterable[Callable[[Document], Table]], document: Document) -> list[Table]:
    """Return the tables that have a row."""
    origin = ORIGINS.get(document["source"], "")
    return [replace(table, origin=origin) for build in builders if (table := build(document)).rows]


CELL_KEYS_ON_PAGES = (
    "relation", "model", "setting", "n", "accepted", "rejected", "undecided", "incomplete",
    "accuracy", "accuracy_low", "accuracy_high", "rejection", "reason", "judge",
)  # fmt: skip


def abridged(document: Document) -> dict[str, Any]:
    """Return the document without what only files hold: a tenth of it where there are many relations.

    Pages and figures of it are those of the whole.
    """
    pairs, fits_matrix = document["annotator_pairs"], annotators.fits_matrix(document)
    drawn = [*curves.side_curves(document), *curves.calibration_curves(document)]
    scored = curves.scored_cells(document)
    cells = []
    for cell in document["cells"]:
        modelled = {
            name: {key: value for key, value in cell[name].items() if value is not None}
            for name in ("corrected", "pooled", "every_look")
            if name in cell
        }
        cells.append({key: cell[key] for key in CELL_KEYS_ON_PAGES if key in cell} | modelled)
    sensitivities = document.get("sensitivity") or {}
    return {
        **document,
        "cells": cells,
        "curves": drawn,
        "n_scored_cells": len(scored),
        "scored_relations": sorted({curve["relation"] for curve in scored}),
        "comparisons": [
            {name: value for name, value in comparison.items() if name != "relations"}
            for comparison in document["comparisons"]
        ],
        "sensitivity": {name: value for name, value in sensitivities.items() if name != "cells"},
        "conduct": conduct.without_many_prompts(document.get("conduct")),
        # Too many for a table are one, so that the page can say that there are some.
        "annotator_pairs": pairs if fits_matrix else pairs[:1],
    }


# The finding


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
