"""The report of a round as a JSON document, and its tables. The functions access neither the database nor the clock.

docs/report-json.md describes the keys.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from evaluation.evidence.evidence import (
    Conduct,
    Evidence,
    cells_of,
    conduct_of_rows,
    drawn_verdicts,
    evidence_of_rows,
    ranked_strata,
)
from evaluation.evidence.judges import (
    JudgeAnswers,
    JudgedStrata,
    JudgedTuples,
    judge_answers_of_rows,
    judged_tuples_of_rows,
)
from evaluation.evidence.tables import Rows
from evaluation.rendering.documents import ORIGINS, Document, lm_and_setting
from evaluation.reports.report_sections import Facts, report_sections, sections_of
from evaluation.reports.sections import (
    annotators,
    assisted_rates,
    comparisons,
    conduct,
    conventions,
    judge_card,
    modelled_rates,
    rates,
    sensitivity,
)
from evaluation.reports.sections.annotators import MOST_ANNOTATORS_IN_MATRIX
from evaluation.reports.sections.comparisons import MOST_NAMED, ranks_of
from evaluation.reports.sections.rates import interval_of_average
from kgharvest.pages.number_format import counted, in_points, share_with_interval, with_rounded_numbers
from kgharvest.statistics.arrays import INCOMPLETE, UNJUDGEABLE
from kgharvest.statistics.judge_assisted import GROUPS
from kgharvest.statistics.paired_tests import MARGIN
from kgharvest.statistics.rates import SIGNIFICANCE
from kgharvest.statistics.verdicts import MOST_WANTED
from kgharvest.tables.table import Table, without_empty_columns

# Paragraphs on the statistical methods, in reading order. `method_of` selects the paragraphs that apply to a report.
METHOD_PARTS = {
    "verdicts": (
        "Verdicts. A statement is accepted if more than half of its judgments are True, rejected if more than half are "
        "False, and undecided otherwise."
    ),
    "incomplete_statements": (
        "An incomplete statement contributes the probability of each verdict, given its labels. Labels are assumed to "
        "be missing at random. The probabilities are estimated by EM from the shares of complete label patterns. If "
        "the labels do not identify a share, its interval covers the range from the worst to the best possible "
        "outcome."
    ),
    **rates.METHOD_PARTS,
    **conventions.METHOD_PARTS,
    **modelled_rates.METHOD_PARTS,
    **annotators.METHOD_PARTS,
    **comparisons.METHOD_PARTS,
    **rates.PLAN_METHOD_PARTS,
    **conduct.METHOD_PARTS,
    **assisted_rates.METHOD_PARTS,
    **judge_card.METHOD_PARTS,
}
METHOD = "\n\n".join(METHOD_PARTS.values())  # all paragraphs; preregistrations freeze this text


def method_of(document: Document) -> str:
    """Return the paragraphs on the methods that a new report uses, separated by blank lines."""
    cells, totals, compared = (document[name] for name in ("cells", "totals", "comparisons"))
    models, plans = document["annotator_models"], document["planner"]
    ranks, judge, card, conducted = (document[name] or {} for name in ("ranks", "judge", "judge_card", "conduct"))
    used = {
        "verdicts": True,
        "incomplete_statements": document["n_complete"] < document["n_tasks"],
        "rates": cells,
        "unknown_population": any(cell["population"] is None for cell in cells),
        "averages": any(total["n_relations"] > 1 for total in totals),
        "fixed_width": document.get("closed_at_half_width"),
        "similar_relations": any(total["similar_relations"]["low"] is not None for total in totals),
        "curves_and_cuts": document["curves"] or document["cuts"],
        "conventions": document["conventions"] and document["n_judgments"],
        "clustered_draws": (conducted.get("design") or {}).get("cluster_size"),
        "clusters": document.get("n_clusters"),
        "corrected_rates": document["annotator_errors"]["reason"] is None,
        "every_look": any(cell["every_look"]["low"] is not None for cell in cells),
        "every_look_with_judge": judge,
        "every_look_of_averages": any(
            total["n_relations"] > 1 and total["every_look"]["low"] is not None for total in totals
        ),
        "agreement": document["alpha"]["n_units"],
        "agreement_of_annotators": document["alpha"]["annotators"]["low"] is not None,
        "another_panel": any(total["another_panel"]["low"] is not None for total in totals),
        "annotator_models": any(model["reason"] is None for model in models),
        "annotator_models_on_gold": any(model["gold"] for model in models),
        "comparisons": compared,
        "comparisons_by_relations": any(comparison["unit"] == "relations" for comparison in compared),
        "comparisons_by_statements": any(comparison["unit"] == "statements" for comparison in compared),
        "equivalence": any(comparison["equivalence"] for comparison in compared),
        "shared_tuples": any(comparison["n_shared_tuples"] for comparison in compared),
        "ranks": ranks.get("sides"),
        "ranks_of_relations": ranks.get("relations"),
        "planned_statements": any(plan["reason"] is None for plan in plans["totals"]),
        "planned_relations": any(plan["reason"] is None for plan in plans["comparisons"]),
        "exclusions": any(exclusion["effects"] for exclusion in conducted.get("exclusions", ())),
        "judge_assisted": judge,
        "people_alone": judge,
        "judge_assisted_comparisons": judge.get("comparisons"),
        "judge_quality": card.get("n_verdicts"),
        "alternative_annotator": any(test["reason"] is None for test in card.get("alternative_annotator", ())),
        "label_changes": card and (card["other_runs"] or "reason" not in card["flips"]),
        "calibration": (card.get("calibration") or {}).get("bins"),
        "panel": card.get("panel"),
    }
    paragraphs = [paragraph for name, paragraph in METHOD_PARTS.items() if used[name]]
    return "\n\n".join([*paragraphs, *(section.method for section in sections_of(document) if section.method)])


# Tables for readers, in reading order. Tables of REPORT_SECTIONS come before the comparisons.
TABLES = (
    rates.relation_table,
    rates.setting_table,
    rates.model_table,
    conventions.convention_table,
    modelled_rates.corrected_table,
    rates.size_table,
    comparisons.comparison_table,
    comparisons.rank_table,
    comparisons.relation_rank_table,
    annotators.agreement_table,
    annotators.agreement_parts_table,
    annotators.annotator_table,
    annotators.pair_table,
    annotators.annotator_model_table,
    sensitivity.sensitivity_table,
    sensitivity.leave_one_out_table,
    sensitivity.sensitive_comparison_table,
    sensitivity.leave_one_out_comparison_table,
    sensitivity.rule_table,
    rates.plan_table,
    rates.similar_table,
    annotators.panel_table,
    assisted_rates.assisted_table,
    assisted_rates.assisted_comparison_table,
    *judge_card.TABLES,
    conduct.flow_table,
    conduct.exclusion_table,
    conduct.exclusion_effect_table,
    conduct.design_table,
    conduct.wrong_part_table,
    conduct.timeline_table,
    conduct.sampling_table,
    conduct.harvest_table,
    conduct.prompt_table,
)
ABOUT_ANNOTATORS = {
    *("annotators", "annotator-pairs", "left-out", "left-out-comparisons", "exclusions", "exclusion-effects"),
    "timeline",
}  # names of the tables with codes of annotators
# Long lists, intended for programs.
LISTS = (
    rates.cell_table,
    sensitivity.sensitive_cell_table,
    rates.size_curve_table,
    rates.calibration_table,
    conduct.sampling_cell_table,
    assisted_rates.assisted_cut_table,
)


def document_of_rows(
    rows: Rows, facts: Mapping[str, Any], section_facts: Mapping[str, Facts | None] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the report's JSON, which is the same for rows from the database and for rows from files.

    facts: rules, `equivalence_margin`, and the facts of `conduct` that no row contains. section_facts: facts of the
    sections in REPORT_SECTIONS, by key.
    """
    evidence = evidence_of_rows(rows, facts)
    study_log = conduct_of_rows(rows, facts["quota"], facts["conduct"], evidence)
    answers = judged = None
    if rows["judge_runs"]:
        answers, judged = judge_answers_of_rows(rows, evidence), judged_tuples_of_rows(rows, evidence)
    return build_document(evidence, facts["equivalence_margin"], study_log, answers, judged, section_facts)


def build_document(
    evidence: Evidence,
    equivalence_margin: float = MARGIN,
    study_log: Conduct | None = None,
    answers: JudgeAnswers | None = None,
    judged_tuples: JudgedTuples | None = None,
    section_facts: Mapping[str, Facts | None] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the report's JSON. The result is determined by the arguments: the bootstrap uses the round's seed.

    equivalence_margin: largest difference, as a share, at which two sides count as equivalent. answers, judged_tuples:
    labels of the report's judge for the statements and for all tuples. section_facts: facts of the sections in
    REPORT_SECTIONS, by key.
    """
    added = report_sections() if section_facts else []
    sections = [(section, facts) for section in added if (facts := section_facts.get(section.key))]
    for section, facts in sections:
        evidence = section.prepared(evidence, facts)
    drawn = drawn_verdicts(evidence)
    cells, ranked = cells_of(evidence, drawn), ranked_strata(evidence, drawn)
    conducted = conduct.conduct_entry(evidence, study_log, drawn) if study_log else None
    judged = JudgedStrata(evidence, drawn, judged_tuples) if judged_tuples else None
    totals = rates.total_entries(evidence, cells)
    has_pairs = len(evidence.sides) > 1
    compared = comparisons.comparison_entries(evidence, cells, drawn, equivalence_margin) if has_pairs else []
    model = annotators.fit_model(evidence)
    correction = modelled_rates.correct_for_errors(evidence)
    modelled = modelled_rates.with_modelled_rates(rates.cell_entries(cells), evidence, cells, correction)
    at_every_look = modelled_rates.every_look_entries(evidence, modelled, *(judged.groups() if judged else ()))
    averages = modelled_rates.with_corrected_averages(totals, modelled, evidence, cells, correction)
    averages = modelled_rates.with_every_look_averages(averages, at_every_look, evidence, judged)
    averages = annotators.with_another_panel(averages, evidence, cells)
    judged_by_label = _judged_by_label(evidence, judged) if judged else None
    document = {
        "round": evidence.round,
        "source": evidence.source,
        "demonstrators": list(evidence.demonstrators),
        "seed": evidence.seed,
        "judgments_per_task": evidence.judgments_per_task,
        "equivalence_margin": equivalence_margin,
        "closed_at_half_width": evidence.closed_at,
        "n_tasks": evidence.n_tasks,
        "n_complete": int(evidence.is_complete.sum()),
        "n_judgments": len(evidence.judgments.task),
        **({} if evidence.cluster is None else {"n_clusters": len(np.unique(evidence.cluster))}),
        "n_adjudicated": int(np.count_nonzero(evidence.is_complete & (evidence.adjudicated != INCOMPLETE))),
        **annotators.agreement_entries(evidence),
        "annotator_errors": correction.entry,
        "cells": assisted_rates.with_assisted_rates(at_every_look, evidence, judged) if judged else at_every_look,
        "totals": assisted_rates.with_assisted_averages(averages, evidence, judged) if judged else averages,
        "conventions": conventions.convention_entries(evidence, drawn),
        "curves": rates.curve_entries(evidence, ranked, evidence.effective(drawn.accepted), judged),
        "comparisons": compared,
        "ranks": comparisons.rank_entry(evidence, modelled, drawn) if has_pairs else None,
        "sensitivity": sensitivity.sensitivity_entry(evidence, drawn, model),
        **annotators.annotator_entries(evidence, model),
        "annotator_models": [annotators.model_entry(evidence, model)],
        "planner": rates.plan_entry(evidence, totals, cells, compared),
        "judge": assisted_rates.judge_entry(evidence, drawn, judged) if judged else None,
        "judge_card": judge_card.card_entry(evidence, answers) if answers else None,
        "novelty": None,
        "conduct": conducted,
        "judged_by_label": judged_by_label,
        "notes": _notes(evidence, conducted, judged_by_label),
        "cuts": rates.cut_entries(evidence, ranked, judged),
    }
    document |= {section.key: section.entry(document, facts) for section, facts in sections}
    rounded: dict[str, Any] = with_rounded_numbers(document)
    return rounded


def _judged_by_label(evidence: Evidence, judged: JudgedStrata) -> list[dict[str, Any]]:
    """Return the numbers of tuples, draws, and draws with a judgment, by the judge's label."""
    group_of_draw, sizes = judged.groups()
    has_judgment = (evidence.counts.sum(axis=1) > 0)[evidence.draws.task]
    n_drawn, n_judged = (
        np.bincount(group_of_draw[part], minlength=len(GROUPS)) for part in (slice(None), has_judgment)
    )
    columns = (GROUPS, sizes.sum(axis=0).tolist(), n_drawn.tolist(), n_judged.tolist())
    return [dict(zip(("label", "tuples", "drawn", "judged"), row, strict=True)) for row in zip(*columns, strict=True)]


def _selection_in_words(judged_by_label: Sequence[Mapping[str, Any]] | None) -> str:
    """Describe whether the chance to be judged depends on the truth, as far as a judge's labels show it."""
    if judged_by_label is None:
        return (
            "If the chance to be judged depends on the truth of a statement, the accuracy is biased. Without the "
            "labels of a judge for all tuples, this cannot be seen."
        )
    parts = "; ".join(
        f"{entry['label']}: {entry['judged']:,} of {entry['drawn']:,} drawn, among {counted(entry['tuples'], 'tuple')}"
        for entry in judged_by_label
        if entry["tuples"]
    )
    return f"Statements with a judgment, by the judge's label: {parts}. Unequal shares can bias the accuracy."


def _notes(
    evidence: Evidence, conducted: Mapping[str, Any] | None, judged_by_label: Sequence[Mapping[str, Any]] | None
) -> list[str]:
    """Return the notes that apply to all numbers of the report."""
    n_tasks, open_tasks = evidence.n_tasks, evidence.n_tasks - int(evidence.is_complete.sum())
    counts = evidence.counts[evidence.is_complete]
    n_judgments = counts.sum(axis=1)
    n_single = int((n_judgments < evidence.quorum).sum())
    n_tied = int(np.count_nonzero(2 * counts.max(axis=1, initial=0) == n_judgments))
    draws = evidence.draws
    strata = np.unique(draws.stratum[(draws.rank > 0) & np.isnan(draws.score)])
    sides = {evidence.cells[cell].side for cell in evidence.cell_of_stratum[strata].tolist()}
    unscored = sorted(f"{side.model} × {side.setting}" for side in sides)
    is_open = ~evidence.is_complete & evidence.counts.any(axis=1)
    n_many = int(np.count_nonzero(is_open & (evidence.wanted > MOST_WANTED)))
    exclusions = conducted["exclusions"] if conducted else []
    n_in_force = sum(exclusion["reinstated_at"] is None for exclusion in exclusions)
    excluded = counted(conducted["judgments"]["n_excluded"], "judgment") if conducted and n_in_force else ""
    effects = sorted({f"{effect:.2f}" for effect in evidence.accuracy_effects.tolist()}, key=float)
    notes = [
        (
            evidence.source == "simulated",
            "The judgments are simulated, not made by people: the rates are not evidence about the truth of the "
            "tuples.",
        ),
        (
            evidence.source == "imported",
            f"The judgments were imported. {_selection_in_words(judged_by_label)}",
        ),
        (
            n_single > 0,
            f"{n_single} of {n_tasks} statements have a single judgment. A verdict requires two judgments that agree, "
            "so these statements are undecided regardless of their label. The shares have little meaning.",
        ),
        (
            len(counts) > 0 and evidence.quorum == 1 and (n_judgments == 1).all(),
            "Every statement has a single judgment: its verdict is the unconfirmed label of one annotator.",
        ),
        (
            len(counts) > 0 and not counts[:, :UNJUDGEABLE].any(),
            "Every judgment is Unjudgeable: no statement was decided, so accuracy and rejection are 0.",
        ),
        (
            n_tied > 0,
            f"{n_tied} of {len(counts)} statements are tied: exactly half of their judgments have the same label. Ties "
            "are undecided.",
        ),
        (
            len(evidence.demonstrators) > 0,
            f"Demonstrator: the accuracy of {', '.join(evidence.demonstrators)} does not generalize to other LMs.",
        ),
        (
            len(unscored) > 0,
            f"{', '.join(unscored)}: the harvests have no scores and are ranked in the order of the imported file. "
            "Accuracy by score and cuts by score are not available; the top-ranked tuples are the first tuples in the "
            "file.",
        ),
        (
            open_tasks > 0,
            f"{open_tasks} of {n_tasks} statements are incomplete. Incompleteness may depend on the answers, so these "
            "statements are not discarded: each contributes the probability of each verdict given its labels, which "
            "widens the intervals. Statements without a judgment contribute nothing. Each affected cell also reports "
            "its accuracy if all incomplete statements were rejected, and if all were accepted."
            + ("" if evidence.counts.any(axis=1).all() else f" {_selection_in_words(judged_by_label)}"),
        ),
        (
            evidence.cluster is not None,
            "The statements were sampled in clusters. Intervals of accuracy divide the number of statements of each "
            f"stratum by its design effect ({' to '.join(dict.fromkeys([*effects[:1], *effects[-1:]]))}).",
        ),
        (
            evidence.closed_at is not None,
            f"The round closed at ± {in_points(evidence.closed_at or 0)}. Averages have fixed-width intervals, which "
            "are valid at this stop. They can be wider than the intervals of the relations.",
        ),
        (
            n_many > 0,
            f"{n_many} of the incomplete statements require more than {MOST_WANTED} judgments; they count with the "
            "verdict of their current judgments.",
        ),
        (
            evidence.has_thirds,
            "A third judgment was requested only if the first two differed. Verdicts are the same as with three "
            "judgments. Agreement is based on the first two judgments of each statement, because the third would give "
            "disputed statements more weight.",
        ),
        (
            n_in_force > 0,
            f"{n_in_force} {'annotator was' if n_in_force == 1 else 'annotators were'} excluded, with {excluded}. "
            "“Exclusions” lists the annotators, the reasons, and the effect on accuracy.",
        ),
    ]
    return [note for is_needed, note in notes if is_needed]


# Tables and page content


def report_tables(document: Document) -> list[Table]:
    """Return every table that has a row. If the judgments are not human, the captions name their origin."""
    return tables_of((*tables_for_people(), *LISTS), document)


def tables_to_read(document: Document, with_annotators: bool = True) -> list[Table]:
    """Return the tables for people, without long lists and without empty columns.

    with_annotators: False to omit the tables about single annotators and the study log.
    """
    tables = tables_of(tables_for_people(), document)
    return [without_empty_columns(table) for table in tables if with_annotators or table.name not in ABOUT_ANNOTATORS]


def tables_for_people() -> list[Callable[[Document], Table]]:
    """Return TABLES with the tables of REPORT_SECTIONS."""
    tables: list[Callable[[Document], Table]] = [*TABLES]
    position = tables.index(comparisons.comparison_table)
    tables[position:position] = [table for section in report_sections() for table in section.tables]
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
    """Return the document without the parts that only files contain. Its pages and figures are the same.

    With many relations, the result has a tenth of the size of the document.
    """
    pairs, fits_matrix = document["annotator_pairs"], len(document["annotators"]) <= MOST_ANNOTATORS_IN_MATRIX
    shown_curves = [*rates.side_curves(document), *rates.calibration_curves(document)]
    scored = rates.scored_cells(document)
    cells = []
    for cell in document["cells"]:
        modelled = {
            name: {key: value for key, value in cell[name].items() if value is not None}
            for name in ("corrected", "every_look")
            if name in cell
        }
        cells.append({key: cell[key] for key in CELL_KEYS_ON_PAGES if key in cell} | modelled)
    sensitivities = document.get("sensitivity") or {}
    conducted = document.get("conduct")
    if conducted and sum(cell["n_prompts"] for cell in conducted["cells"]) > conduct.MOST_PROMPTS:
        conducted = {**conducted, "cells": [{**cell, "prompts": []} for cell in conducted["cells"]]}
    return {
        **document,
        "cells": cells,
        "curves": shown_curves,
        "n_scored_cells": len(scored),
        "scored_relations": sorted({curve["relation"] for curve in scored}),
        "comparisons": [
            {name: value for name, value in comparison.items() if name != "relations"}
            for comparison in document["comparisons"]
        ],
        "sensitivity": {name: value for name, value in sensitivities.items() if name != "cells"},
        "conduct": conducted,
        # If the table of pairs would be too large, only one pair is stored. The page then knows that there are pairs.
        "annotator_pairs": pairs if fits_matrix else pairs[:1],
    }


def finding(document: Document) -> str:
    """Return the finding of a report: the accuracy of the LMs and settings that may be the most accurate.

    It names no winner, because the best of several estimates is biased upward. Preregistered comparisons are cited.
    """
    totals = [total for total in document["totals"] if total["macro_accuracy"] is not None]
    if not totals:
        return "No statement has a verdict yet."
    origin = f"{ORIGINS[document['source']].capitalize()}: " if document["source"] in ORIGINS else ""
    numbers = {total["n_relations"] for total in totals}
    over = "over these relations" if len(numbers) > 1 else f"over these {max(numbers):,} relations"
    names = {cell["relation"] for cell in document["cells"] if cell["accuracy"] is not None}
    of_relation = f" of {name.replace('_', ' ')}" if len(names) == 1 and (name := names.pop()) else ""
    if len(totals) == 1:
        [total] = totals
        subject = "" if total["model"] is None and total["setting"] is None else f"{lm_and_setting(total)}: "
        average = "" if numbers == {1} else f", on average {over}"
        return f"{origin}{subject}{_share_of(total)} of the tuples{of_relation} are true{average}."
    leading = _leading_group(document, totals)
    named = [f"{lm_and_setting(total)} {_share_of(total)}" for total in leading[:MOST_NAMED]]
    if len(leading) > MOST_NAMED:
        named.append(f"and {counted(len(leading) - MOST_NAMED, 'other')}")
    sides, end = f"{len(totals)} LMs and settings", ""
    if len(leading) < len(totals):
        sides, end = f"The leading group contains {len(leading)} of {sides}", " The others are less accurate (95 %)."
    else:
        sides += " are not distinguishable" if ranks_of(document)["sides"] else " were evaluated"
    accuracy = f"Accuracy{of_relation}" if numbers == {1} else f"Mean accuracy {over}"
    return f"{origin}{sides}. {accuracy}: {'; '.join(named)}.{end}{_preregistered(document)}"


def _share_of(total: Mapping[str, Any]) -> str:
    return share_with_interval(total["macro_accuracy"], *interval_of_average(total))


def _leading_group(document: Document, totals: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the totals that may have rank 1, in the order of the report. Sides that were not compared are among them.

    With 95 % confidence, the group contains the most accurate side (kgharvest.statistics.paired_tests).
    """
    first_rank = {(side["model"], side["setting"]): side["low"] for side in ranks_of(document)["sides"]}
    return [total for total in totals if first_rank.get((total["model"], total["setting"]), 1) == 1]


def _preregistered(document: Document) -> str:
    """Return the sentences of preregistered comparisons or, if there are many, how many are significant."""
    planned = [comparison for comparison in document["comparisons"] if comparison.get("planned")]
    if len(planned) > MOST_NAMED:
        n_significant = sum(comparison["p_holm"] < SIGNIFICANCE for comparison in planned)
        return f" {n_significant} of {len(planned)} preregistered comparisons are significant."
    return "".join(f" Preregistered: {comparison['sentence']}" for comparison in planned)
