"""Annotators in reports: labels, gold accuracy, agreement, and models of annotators."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.evidence.evidence import Cell, Evidence, Judgments, label_counts
from evaluation.rendering.documents import Document, about_side, lm_and_setting
from kgharvest.pages.number_format import p_value
from kgharvest.statistics.agreement import (
    N_DRAWS,
    PanelJudgments,
    annotators_interval,
    fleiss_kappa,
    gwet_ac1,
    interval_for_another_panel,
    krippendorff_alpha,
    pair_counts,
    percent_agreement,
)
from kgharvest.statistics.annotator_models import DawidSkene, Judged, fit_dawid_skene
from kgharvest.statistics.arrays import (
    ACCEPTED,
    FALSE,
    INCOMPLETE,
    LABELS,
    REJECTED,
    TRUE,
    UNDECIDED,
    UNJUDGEABLE,
    VERDICTS,
    Codes,
    Flags,
    Floats,
)
from kgharvest.statistics.paired_tests import mcnemar_p
from kgharvest.statistics.rates import SIGNIFICANCE, Rate, rate
from kgharvest.statistics.verdicts import majority
from kgharvest.tables.table import Column, Kind, Row, Table, of_kind

METHOD_PARTS = {
    "agreement": (
        "Agreement is measured by nominal Krippendorff's alpha over statements with at least two judgments, and by "
        "Gwet's AC1 (2008) with the shares of labels over all judged statements. Percent agreement is the share of "
        "agreeing pairs of judgments. Intervals hold for similar statements and the same annotators. Their limits are "
        "the 2.5 % and 97.5 % quantiles of 5,000 draws (1,000 for a part of the statements) of the Bayesian bootstrap "
        "(Rubin 1981) over all possible patterns of a statement's judgments. For few statements, the quantiles are "
        "widened like those of Student's t (Hesterberg 2015)."
    ),
    "agreement_of_annotators": (
        "The second interval of alpha also holds for similar annotators. Each arm of the first interval is combined "
        "in quadrature with the arm of two-way clustering by annotator (Cameron, Gelbach, and Miller 2011)."
    ),
    "another_panel": (
        "The interval of an average for another panel of annotators adds the variation between annotators to the "
        "interval for these relations, in quadrature. An annotator's effect is the sum of the changes of verdicts that "
        "their labels cause, compared with the labels of other annotators of similar statements. It counts twice, for "
        "this panel and the other one, with a quantile of Student's t. The interval needs five annotators."
    ),
    "annotator_models": (
        "The model of annotators is that of Dawid and Skene (1979). It is fitted by EM to all judgments except "
        "Unjudgeable."
    ),
    "annotator_models_on_gold": (
        "McNemar's exact test compares the model of annotators with the majority on gold statements."
    ),
}
DAWID_SKENE, TITLE = "dawid_skene", "Dawid-Skene"
ONE_ANNOTATOR = "With a single annotator, errors cannot be estimated."
NO_OPINION = "There is no True or False label."
ONE_LABEL = "All labels except Unjudgeable are the same, so annotators cannot be distinguished."
NO_GOLD = "without gold statements, it is unknown which of the two is correct"


@dataclass(frozen=True)
class FittedModel:
    """The fitted model of Dawid and Skene, with its verdicts on all statements (T,) and on gold statements.

    fit: None if the model cannot be fitted; `reason` says why. has_opinion (A,): see `judged_opinions`.
    """

    fit: DawidSkene | None
    verdict: Codes | None
    gold_verdict: Codes | None
    has_opinion: Flags
    reason: str | None


def fit_model(evidence: Evidence) -> FittedModel:
    """Fit the model to all True and False labels, including labels of gold statements but not the known answers."""
    judged, has_opinion = judged_opinions(evidence)
    reason = None
    if not len(judged.task):
        reason = NO_OPINION
    elif np.count_nonzero(has_opinion) < 2:
        reason = ONE_ANNOTATOR
    elif len(np.unique(judged.label)) < 2:
        reason = ONE_LABEL
    if reason:
        return FittedModel(None, None, None, has_opinion, reason)
    fit = fit_dawid_skene(judged)
    is_likely = (fit.labels > 0.5) & (judged.per_task() > 0)[:, np.newaxis]  # (T, 2); without opinions: undecided
    verdict = np.select([is_likely[:, TRUE], is_likely[:, FALSE]], [ACCEPTED, REJECTED], UNDECIDED)
    of_tasks, of_gold = np.split(verdict, [evidence.n_tasks])
    return FittedModel(fit, of_tasks, of_gold, has_opinion, None)


def judged_opinions(evidence: Evidence) -> tuple[Judged, Flags]:
    """Return all True and False labels, and a mask (A,) of annotators with such a label.

    Gold statements come last.
    """
    columns = [np.concatenate(pair) for pair in zip(evidence.judgments[:3], evidence.gold[:3], strict=True)]
    task, annotator, label = (column[columns[2] != UNJUDGEABLE] for column in columns)
    n_tasks = evidence.n_tasks + len(evidence.gold_truth)
    has_opinion = np.bincount(annotator, minlength=len(evidence.annotators)) > 0
    return Judged(task, annotator, label, n_tasks, len(evidence.annotators), 2, len(evidence.gold_truth)), has_opinion


def annotator_entries(evidence: Evidence, model: FittedModel) -> dict[str, list[dict[str, Any]]]:
    """Return `annotators` and `annotator_pairs` of docs/report-json.md."""
    judgments, gold, n_annotators = evidence.judgments, evidence.gold, len(evidence.annotators)
    labels = label_counts(judgments._replace(task=judgments.annotator), n_annotators)  # (A, 3)
    is_right = gold.label == evidence.gold_truth[gold.task - evidence.n_tasks]
    n_gold = np.bincount(gold.annotator, minlength=n_annotators).tolist()
    n_correct = np.bincount(gold.annotator[is_right], minlength=n_annotators).tolist()
    is_timed = np.isfinite(judgments.seconds)
    order = np.argsort(judgments.annotator[is_timed], kind="stable")
    edges = np.searchsorted(judgments.annotator[is_timed][order], np.arange(n_annotators + 1))
    seconds = judgments.seconds[is_timed][order]
    entries = []
    for number, code in enumerate(evidence.annotators):
        annotator_seconds = seconds[edges[number] : edges[number + 1]]
        accuracy = rate(n_correct[number], n_gold[number])
        confusion = None
        if model.fit and model.has_opinion[number]:
            errors = model.fit.errors[number]  # (true, given)
            confusion = {"true_accuracy": float(errors[TRUE, TRUE]), "false_accuracy": float(errors[FALSE, FALSE])}
        entries.append({
            "annotator": code,
            "n_judgments": int(labels[number].sum()),
            **dict(zip(LABELS, labels[number].tolist(), strict=True)),
            "median_seconds": float(np.median(annotator_seconds)) if len(annotator_seconds) else None,
            "gold": {
                "n": n_gold[number], "correct": n_correct[number],
                "accuracy": accuracy.value, "low": accuracy.low, "high": accuracy.high,
            },
            "dawid_skene": confusion,
        })  # fmt: skip
    codes = evidence.annotators
    pairs = [
        {"a": codes[a], "b": codes[b], "n_shared": n_shared, "agreement": n_agreeing / n_shared}
        for a, b, n_shared, n_agreeing in pair_counts(*evidence.first_two.judgments[:3])
    ]
    return {"annotators": entries, "annotator_pairs": pairs}


def model_entry(evidence: Evidence, model: FittedModel) -> dict[str, Any]:
    if model.fit is None or model.verdict is None or model.gold_verdict is None:
        keys = ("n_steps", "converged", "prior_true", *VERDICTS[:3], "n_compared", "n_differing")
        return {"model": DAWID_SKENE, "reason": model.reason, **dict.fromkeys((*keys, "gold", "sentence"))}
    both_decide = (model.verdict < UNDECIDED) & (evidence.verdict < UNDECIDED)
    n_compared = int(np.count_nonzero(both_decide))
    n_differing = int(np.count_nonzero(both_decide & (model.verdict != evidence.verdict)))
    n_of_verdict = np.bincount(model.verdict[evidence.is_complete], minlength=INCOMPLETE).tolist()
    gold = _on_gold(evidence, model.gold_verdict)
    return {
        "model": DAWID_SKENE,
        "reason": None,
        "n_steps": model.fit.n_steps,
        "converged": model.fit.converged,
        "prior_true": float(model.fit.prior[TRUE]),
        **dict(zip(VERDICTS[:INCOMPLETE], n_of_verdict, strict=True)),
        "n_compared": n_compared,
        "n_differing": n_differing,
        "gold": gold,
        "sentence": _sentence(model.fit.converged, n_compared, n_differing, gold),
    }  # fmt: skip


def _on_gold(evidence: Evidence, gold_verdict: Codes) -> dict[str, Any] | None:
    """Count the correct verdicts of the model and of the majority on judged gold statements.

    None without such statements.
    """
    n_gold = len(evidence.gold_truth)
    counts = label_counts(evidence.gold._replace(task=evidence.gold.task - evidence.n_tasks), n_gold)  # (gold, 3)
    is_judged = counts.sum(axis=1) > 0
    if not is_judged.any():
        return None
    truth = np.where(evidence.gold_truth == TRUE, ACCEPTED, REJECTED)[is_judged]
    by_majority, by_the_model = (verdict[is_judged] == truth for verdict in (majority(counts), gold_verdict))
    only_model = int(np.count_nonzero(by_the_model & ~by_majority))
    only_majority = int(np.count_nonzero(by_majority & ~by_the_model))
    return {
        "n": int(np.count_nonzero(is_judged)),
        "model_correct": int(np.count_nonzero(by_the_model)),
        "majority_correct": int(np.count_nonzero(by_majority)),
        "p": mcnemar_p(only_model, only_majority),
    }


def _sentence(converged: bool, n_compared: int, n_differing: int, gold: Mapping[str, Any] | None) -> str:
    """Return sentences that compare the verdicts of the model with those of the majority.

    One of the two is called better only if the difference on gold statements is significant.
    """
    start = f"{TITLE} and the majority differ on {n_differing} of {n_compared} statements decided by both"
    rest = "" if converged else f" {TITLE} did not converge; its numbers are preliminary."
    if gold is None:
        return f"{start}; {NO_GOLD}.{rest}"
    correct = f"of {gold['n']} gold statements, {TITLE} has {gold['model_correct']} correct, "
    correct += f"the majority {gold['majority_correct']}"
    if gold["p"] is None or gold["p"] >= SIGNIFICANCE:
        return f"{start}; {correct}, which is not a significant difference.{rest}"
    better = TITLE if gold["model_correct"] > gold["majority_correct"] else "the majority"
    return f"{start}; {correct}: {better} is better (p {'' if gold['p'] < 0.001 else '= '}{p_value(gold['p'])}).{rest}"


MOST_ANNOTATORS_IN_MATRIX = 20  # maximum number of columns that fit on a page
NOTE_ON_MODEL = (
    "sensitivity: share of True labels among the annotator's labels of statements that are true according to "
    "Dawid-Skene. specificity: share of False labels among the annotator's labels of statements that are false."
)


def annotator_table(document: Document) -> Table:
    rows = []
    for annotator in document["annotators"]:
        gold, dawid_skene = (annotator.get(key) or {} for key in ("gold", "dawid_skene"))
        values = (
            *(annotator[key] for key in ("annotator", "n_judgments", "true", "false", "unjudgeable")),
            annotator.get("median_seconds"), gold.get("accuracy"), gold.get("n") or None,
            dawid_skene.get("true_accuracy"), dawid_skene.get("false_accuracy"),
        )  # fmt: skip
        rows.append(Row(values, about={"annotator": annotator["annotator"]}))
    columns = (
        Column("annotator"),
        *of_kind(Kind.COUNT, "judgments", "True", "False", "Unjudgeable"),
        Column("median s", Kind.NUMBER),
        Column("gold accuracy", Kind.SHARE),
        Column("gold", Kind.COUNT),
        *of_kind(Kind.SHARE, "sensitivity", "specificity"),
    )
    has_models = any(annotator.get("dawid_skene") for annotator in document["annotators"])
    return Table("annotators", "Annotators", columns, tuple(rows), (NOTE_ON_MODEL,) if has_models else ())


def pair_table(document: Document) -> Table:
    """Return the table of agreement by pair of annotators.

    It is empty if no statements are shared or there are too many annotators.
    """
    codes = [annotator["annotator"] for annotator in document["annotators"]]
    columns = (Column("annotator"), *(Column(code, Kind.SHARE) for code in codes))
    rows: list[Row] = []
    if document["annotator_pairs"] and len(codes) <= MOST_ANNOTATORS_IN_MATRIX:
        agreement = {frozenset((pair["a"], pair["b"])): pair["agreement"] for pair in document["annotator_pairs"]}
        rows = [
            Row((code, *(agreement.get(frozenset((code, other))) for other in codes)), about={"annotator": code})
            for code in codes
        ]
    notes = ("Share of equal labels on the statements judged by both.",)
    return Table("annotator-pairs", "Pairwise agreement", columns, tuple(rows), notes)


def annotator_model_table(document: Document) -> Table:
    models = [model for model in document.get("annotator_models", []) if model["model"] == DAWID_SKENE]
    rows = [
        Row((
            TITLE,
            *(model[key] for key in ("accepted", "rejected", "undecided", "n_compared", "n_differing")),
            (model.get("gold") or {}).get("model_correct"),
            (model.get("gold") or {}).get("majority_correct"),
            (model.get("gold") or {}).get("p"),
            model["reason"],
        ))
        for model in models
    ]  # fmt: skip
    counts = ("accepted", "rejected", "undecided", "compared", "differing", "correct on gold")
    columns = (
        Column("model"),
        *of_kind(Kind.COUNT, *counts, "majority correct on gold"),
        Column("p", Kind.P),
        Column("reason"),
    )
    notes = tuple(model["sentence"] for model in models if model["sentence"])
    return Table("annotator-models", "Verdicts of the model of annotators", columns, tuple(rows), notes)


# Agreement


N_DRAWS_OF_PARTS = 1000
AC1 = "Gwet's AC1"
OTHER_PEOPLE = "similar annotators"
HELD_FIXED = (
    "low, high: interval for similar statements and the same annotators. "
    f"{OTHER_PEOPLE}: interval that also holds for other annotators."
)
PARADOX = (
    "If nearly all statements are true, alpha is low even if annotators agree (prevalence paradox), because most "
    "agreement is then expected by chance. Gwet's AC1 is not affected."
)


def agreement_entries(evidence: Evidence) -> dict[str, Any]:
    """Return the coefficients of the round, and `agreement`: one entry per relation, then one per LM and setting.

    Within each entry, a statement counts only once.
    """
    every_task, patterns = np.arange(evidence.n_tasks), evidence.first_two.patterns
    without_unjudgeable = _alpha_entry(
        evidence, every_task, patterns.counts[:, :UNJUDGEABLE], patterns.n_tasks, N_DRAWS
    )
    of_round = _coefficients(evidence, every_task, N_DRAWS) | {"alpha_without_unjudgeable": without_unjudgeable}
    relation_of_cell = np.array([cell.relation for cell in evidence.cells], dtype=object)
    parts: list[tuple[dict[str, Any], Flags]] = [
        ({"by": "relation", "relation": relation, "model": None, "setting": None}, relation_of_cell == relation)
        for relation in sorted(set(relation_of_cell.tolist()))
    ]
    parts += [
        ({"by": "side", "relation": None, **side._asdict()}, evidence.side_of_cell == number)
        for number, side in enumerate(evidence.sides)
    ]
    entries = []
    for names, is_in_part in parts:  # cells (C,)
        tasks = np.unique(evidence.draws.task[is_in_part[evidence.cell_of_draw]])
        n_judgments = int(evidence.counts[tasks].sum())
        coefficients = _coefficients(evidence, tasks, N_DRAWS_OF_PARTS)
        entries.append({**names, "n_tasks": len(tasks), "n_judgments": n_judgments, **coefficients})
    return of_round | {"agreement": entries}


def _coefficients(evidence: Evidence, tasks: Codes, n_draws: int) -> dict[str, Any]:
    patterns = evidence.first_two.patterns  # (P, 3): judgments by label
    counts, n_tasks = patterns.counts, np.bincount(patterns.of_task[tasks], minlength=len(patterns.counts))
    return {
        "alpha": _alpha_entry(evidence, tasks, counts, n_tasks, n_draws),
        "gwet_ac1": gwet_ac1(counts, n_tasks, np.random.default_rng(evidence.seed), n_draws)._asdict(),
        "percent_agreement": percent_agreement(counts, n_tasks),
        "fleiss_kappa": fleiss_kappa(counts, n_tasks)._asdict(),
    }


def _alpha_entry(evidence: Evidence, tasks: Codes, counts: Codes, n_tasks: Codes, n_draws: int) -> dict[str, Any]:
    """Return Krippendorff's alpha of statements. counts (P, C): patterns of C labels.

    n_tasks (P,): number of statements with each pattern.
    """
    alpha = krippendorff_alpha(counts, n_tasks, np.random.default_rng(evidence.seed), n_draws)
    is_in_part = np.zeros(evidence.n_tasks, dtype=np.bool_)
    is_in_part[tasks] = True
    judgments = evidence.first_two.judgments
    counted = is_in_part[judgments.task] & (judgments.label < counts.shape[1])
    interval = annotators_interval(alpha, *(column[counted] for column in judgments[:3]))
    return alpha._asdict() | {"annotators": interval._asdict()}


AGREEMENT_COLUMNS = (
    *of_kind(Kind.COEFFICIENT, "value", "low", "high"),
    *of_kind(Kind.COEFFICIENT, "low", "high", group=OTHER_PEOPLE),
    Column("statements", Kind.COUNT),
    Column("reason"),
)


def agreement_table(document: Document) -> Table:
    coefficients = {
        "Krippendorff's alpha": document["alpha"],
        "Krippendorff's alpha without Unjudgeable": document["alpha_without_unjudgeable"],
        AC1: document.get("gwet_ac1"),  # absent from old reports
    }
    rows = [Row(_agreement_values(name, entry), about={}) for name, entry in coefficients.items() if entry is not None]
    percent = document["percent_agreement"]
    # Alpha and percent agreement are both based on the statements with at least two judgments.
    n_units = document["alpha"]["n_units"]
    reason = document["alpha"]["reason"] if percent is None else None
    percent_entry = {"value": percent, "n_units": n_units, "reason": reason}
    rows.append(Row(_agreement_values("percent agreement", percent_entry), about={}))
    notes = (HELD_FIXED, PARADOX) if "gwet_ac1" in document else ()
    return Table("agreement", "Agreement", (Column("measure"), *AGREEMENT_COLUMNS), tuple(rows), notes)


def _agreement_values(name: str, entry: Mapping[str, Any]) -> tuple[Any, ...]:
    annotators = entry.get("annotators") or {}  # absent from old reports
    intervals = (part.get(end) for part in (entry, annotators) for end in ("low", "high"))
    return (name, entry["value"], *intervals, entry.get("n_units"), entry["reason"] or annotators.get("reason"))


def agreement_parts_table(document: Document) -> Table:
    rows = [
        Row((
            part["relation"] if part["by"] == "relation" else lm_and_setting(part),
            *(part["alpha"][key] for key in ("value", "low", "high")),
            *((part.get("gwet_ac1") or {}).get(key) for key in ("value", "low", "high")),
            part["percent_agreement"],
            part["n_tasks"],
            part["n_judgments"],
        ), about=about_side(part) | {"relation": part.get("relation")})
        for part in document.get("agreement", [])
    ]  # fmt: skip
    columns = (
        Column("relation, or LM and setting"),
        *of_kind(Kind.COEFFICIENT, "alpha", "low", "high", "AC1", "AC1 low", "AC1 high"),
        Column("percent agreement", Kind.SHARE),
        *of_kind(Kind.COUNT, "statements", "judgments"),
    )
    return Table("agreement-parts", "Agreement per relation and per LM and setting", columns, tuple(rows))


# Accuracy for another panel


def with_another_panel(
    totals: Iterable[Mapping[str, Any]], evidence: Evidence, cells: Iterable[Cell]
) -> list[dict[str, Any]]:
    """Return the averages with `another_panel` of docs/report-json.md."""
    judgments, influence, group = _influences(evidence)
    parts = np.zeros(len(evidence.strata))  # share of each stratum in its cell; 0 if the cell has no accuracy
    for cell, strata in zip(cells, evidence.strata_of_cells, strict=True):
        if cell.rate_of(ACCEPTED).value is not None:
            parts[strata] = cell.part_of_strata
    is_judged = evidence.is_complete & (evidence.adjudicated == INCOMPLETE)
    task, stratum = (column[is_judged[evidence.draws.task]] for column in evidence.draws[:2])
    n_complete = np.bincount(evidence.draws.stratum[evidence.is_complete[evidence.draws.task]], minlength=len(parts))
    population = evidence.population_of_stratum
    unsampled = 1 - np.divide(n_complete, population, out=np.zeros(len(parts)), where=population > 0)
    with_panel = []
    for number, total in enumerate(totals):
        is_of_side = (evidence.side_of_cell[evidence.cell_of_stratum[stratum]] == number) & (parts[stratum] > 0)
        weight = parts[stratum] / np.maximum(n_complete[stratum], 1) / max(total["n_relations"], 1)
        of_task = np.bincount(task[is_of_side], weight[is_of_side], evidence.n_tasks)
        part_unsampled = np.bincount(task[is_of_side], (weight * unsampled[stratum])[is_of_side], evidence.n_tasks)
        chosen = of_task[judgments.task] > 0
        judged = judgments.task[chosen]
        contributions = PanelJudgments(
            judgments.annotator[chosen],
            judgments.label[chosen] == TRUE,
            group[chosen],
            of_task[judged] * influence[chosen],
            part_unsampled[judged] / of_task[judged],
        )
        low, high = total["macro_accuracy_these_low"], total["macro_accuracy_these_high"]
        accuracy = Rate(total["macro_accuracy"], low, high, total["reason"])
        with_panel.append({**total, "another_panel": interval_for_another_panel(accuracy, contributions)._asdict()})
    return with_panel


def _influences(evidence: Evidence) -> tuple[Judgments, Floats, Codes]:
    """Return the judgments, the change of the verdict if a label were True instead of False, and its group.

    A judgment's group consists of the judgments of statements with equally many judgments, of which equally many of
    the others are True. If a third judgment is requested only if the first two differ, the group of the first two is
    that of two judgments, and the third is expected to be True as often as other third judgments.
    """
    judgments = evidence.judgments
    is_third = evidence.has_thirds & (judgments.annotator == evidence.third[judgments.task])
    first = evidence.first_two.counts
    n_true, n = first[:, TRUE][judgments.task], first.sum(axis=1)[judgments.task]
    is_true = judgments.label == TRUE
    others = n_true - (is_true & ~is_third)
    influence = ((2 * (others + 1) > n) & (2 * others <= n)).astype(np.float64)
    if evidence.has_thirds:
        share_true = is_true[is_third].mean() if is_third.any() else 0.5
        influence = np.where(is_third, 1.0, np.where(others == 1, 1 - share_true, share_true))
    influence[evidence.counts.sum(axis=1)[judgments.task] < evidence.quorum] = 0
    most = int(n.max(initial=0)) + 1
    return judgments, influence, np.where(is_third, most**2, n * most + others)


PANEL_NOTES = (
    "low, high: 95 % interval of the mean accuracy that another panel of as many similar annotators would find, if it "
    "judged all tuples. It assumes that these annotators are a random sample.",
)


def panel_table(document: Document) -> Table:
    """Return the table of averages with their interval for another panel. It is empty without such intervals."""
    rows = [
        Row((lm_and_setting(total), total["macro_accuracy"], panel["low"], panel["high"]), about=about_side(total))
        for total in document["totals"]
        for panel in [total.get("another_panel") or {"low": None}]
        if panel["low"] is not None
    ]
    columns = (Column("LM and setting"), *of_kind(Kind.SHARE, "Acc", "low", "high"))
    return Table("another-panel", "Averages for another panel of annotators", columns, tuple(rows), PANEL_NOTES)
