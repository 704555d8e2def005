"""Annotators: their labels, gold, agreement of pairs, and models of annotators beside the majority."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.evidence.evidence import Evidence, label_counts
from evaluation.rendering.documents import Document
from kgharvest.pages.number_format import p_value
from kgharvest.statistics.agreement import pair_counts
from kgharvest.statistics.annotator_models import FITS, DawidSkene, Judged, Mace
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
)
from kgharvest.statistics.paired_tests import mcnemar_p
from kgharvest.statistics.rates import SIGNIFICANCE, rate
from kgharvest.statistics.verdicts import by_model, majority
from kgharvest.tables.table import Column, Kind, Row, Table, of_kind

METHOD = (
    "Models of annotators: Dawid and Skene (1979) and MACE (Hovy et al. 2013), fitted by EM to all judgments but "
    "Unjudgeable; McNemar's exact test against the majority on gold statements."
)
MODEL_TITLES = {"dawid_skene": "Dawid-Skene", "mace": "MACE"}
ONE_ANNOTATOR = "One annotator alone cannot be told from the truth."
NO_OPINION = "Nobody said True or False."
ONE_LABEL = "All judgments of True or False are alike, so annotators cannot be told apart."
NO_GOLD = "without gold statements nothing tells which of the two is right"


@dataclass(frozen=True)
class FittedModel:
    """A model of annotators: verdicts (T,) on all statements and, on gold ones, what it and the majority say.

    fit: None where `reason` says why there is none.
    """

    name: str
    fit: DawidSkene | Mace | None
    verdict: Codes | None
    gold_verdict: Codes | None
    has_opinion: Flags
    reason: str | None


def fit_models(evidence: Evidence) -> list[FittedModel]:
    """Fit each model to all judgments of True and False, those of gold statements among them but not their truth."""
    judged, has_opinion = judged_opinions(evidence)
    reason = None
    if not len(judged.task):
        reason = NO_OPINION
    elif np.count_nonzero(has_opinion) < 2:
        reason = ONE_ANNOTATOR
    elif len(np.unique(judged.label)) < 2:
        reason = ONE_LABEL
    if reason:
        return [FittedModel(name, None, None, None, has_opinion, reason) for name in FITS]
    n_opinions = judged.per_task()
    fitted = []
    for name, fit_model in FITS.items():
        fit = fit_model(judged)
        verdict = by_model(fit.labels, n_opinions)
        own, gold = verdict[: evidence.n_tasks], verdict[evidence.n_tasks :]
        fitted.append(FittedModel(name, fit, own, gold, has_opinion, None))
    return fitted


def judged_opinions(evidence: Evidence) -> tuple[Judged, Flags]:
    """Return the judgments with an opinion, gold statements behind the others, and which annotators have one (A,)."""
    columns = [np.concatenate(pair) for pair in zip(evidence.judgments[:3], evidence.gold[:3], strict=True)]
    task, annotator, label = (column[columns[2] != UNJUDGEABLE] for column in columns)
    n_tasks = evidence.n_tasks + len(evidence.gold_truth)
    has_opinion = np.bincount(annotator, minlength=len(evidence.annotators)) > 0
    return Judged(task, annotator, label, n_tasks, len(evidence.annotators), 2, len(evidence.gold_truth)), has_opinion


# -- entries of the document -------------------------------------------------------------------------------------------


def annotator_entries(evidence: Evidence, models: Iterable[FittedModel]) -> list[dict[str, Any]]:
    judgments, gold, n_annotators = evidence.judgments, evidence.gold, len(evidence.annotators)
    labels = label_counts(judgments._replace(task=judgments.annotator), n_annotators)  # (A, 3)
    is_right = gold.label == evidence.gold_truth[gold.task - evidence.n_tasks]
    n_gold = np.bincount(gold.annotator, minlength=n_annotators).tolist()
    n_correct = np.bincount(gold.annotator[is_right], minlength=n_annotators).tolist()
    is_timed = np.isfinite(judgments.seconds)
    order = np.argsort(judgments.annotator[is_timed], kind="stable")
    edges = np.searchsorted(judgments.annotator[is_timed][order], np.arange(n_annotators + 1))
    seconds = judgments.seconds[is_timed][order]
    by_name = {model.name: model for model in models}
    dawid_skene, mace = by_name["dawid_skene"], by_name["mace"]
    entries = []
    for number, code in enumerate(evidence.annotators):
        own_seconds = seconds[edges[number] : edges[number + 1]]
        accuracy = rate(n_correct[number], n_gold[number])
        confusion = competence = None
        if isinstance(dawid_skene.fit, DawidSkene) and dawid_skene.has_opinion[number]:
            errors = dawid_skene.fit.errors[number]  # (true, given)
            confusion = {"true_accuracy": float(errors[TRUE, TRUE]), "false_accuracy": float(errors[FALSE, FALSE])}
        if isinstance(mace.fit, Mace) and mace.has_opinion[number]:
            competence = {"competence": float(mace.fit.competence[number])}
        entries.append({
            "annotator": code,
            "n_judgments": int(labels[number].sum()),
            **dict(zip(LABELS, labels[number].tolist(), strict=True)),
            "median_seconds": float(np.median(own_seconds)) if len(own_seconds) else None,
            "gold": {
                "n": n_gold[number], "correct": n_correct[number],
                "accuracy": accuracy.value, "low": accuracy.low, "high": accuracy.high,
            },
            "dawid_skene": confusion,
            "mace": competence,
        })  # fmt: skip
    return entries


def pair_entries(evidence: Evidence) -> list[dict[str, Any]]:
    codes = evidence.annotators
    return [
        {
            "a": codes[pair.a],
            "b": codes[pair.b],
            "n_shared": pair.n_shared,
            "agreement": pair.n_agreeing / pair.n_shared,
        }
        for pair in pair_counts(*evidence.first_two.judgments[:3])
    ]


# -- models beside the majority ----------------------------------------------------------------------------------------


def model_entries(evidence: Evidence, models: Iterable[FittedModel]) -> list[dict[str, Any]]:
    entries = []
    for model in models:
        if model.fit is None or model.verdict is None or model.gold_verdict is None:
            keys = (
                "n_steps",
                "converged",
                "prior_true",
                *VERDICTS[:3],
                "n_compared",
                "n_differing",
                "gold",
                "sentence",
            )
            entries.append({"model": model.name, "reason": model.reason, **dict.fromkeys(keys)})
            continue
        both_decide = (model.verdict < UNDECIDED) & (evidence.verdict < UNDECIDED)
        n_compared = int(np.count_nonzero(both_decide))
        n_differing = int(np.count_nonzero(both_decide & (model.verdict != evidence.verdict)))
        n_of_verdict = np.bincount(model.verdict[evidence.is_complete], minlength=INCOMPLETE).tolist()
        gold = _on_gold(evidence, model.gold_verdict)
        entries.append({
            "model": model.name,
            "reason": None,
            "n_steps": model.fit.n_steps,
            "converged": model.fit.converged,
            "prior_true": float(model.fit.prior[TRUE]) if isinstance(model.fit, DawidSkene) else None,
            **dict(zip(VERDICTS[:INCOMPLETE], n_of_verdict, strict=True)),
            "n_compared": n_compared,
            "n_differing": n_differing,
            "gold": gold,
            "sentence": _sentence(model.name, model.fit.converged, n_compared, n_differing, gold),
        })  # fmt: skip
    return entries


def _on_gold(evidence: Evidence, gold_verdict: Codes) -> dict[str, Any] | None:
    """Return who is right on the gold statements that somebody judged; None if there is none."""
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


def _sentence(name: str, converged: bool, n_compared: int, n_differing: int, gold: Mapping[str, Any] | None) -> str:
    """Say how the model's verdicts differ, and that one side is better only where gold shows it."""
    title = MODEL_TITLES[name]
    start = f"{title} and the majority differ on {n_differing} of {n_compared} statements that both decide"
    rest = "" if converged else f" {title} did not come to rest; its figures are preliminary."
    if gold is None:
        return f"{start}; {NO_GOLD}.{rest}"
    right = f"on {gold['n']} gold statements {title} is right {gold['model_correct']} times, "
    right += f"the majority {gold['majority_correct']} times"
    if gold["p"] is None or gold["p"] >= SIGNIFICANCE:
        return f"{start}; {right}: not distinguishable.{rest}"
    better = title if gold["model_correct"] > gold["majority_correct"] else "the majority"
    return f"{start}; {right}: {better} is better (p {'' if gold['p'] < 0.001 else '= '}{p_value(gold['p'])}).{rest}"


MOST_ANNOTATORS_IN_MATRIX = 20  # as many columns as a page can hold


NOTE_ON_MODELS = (
    "true found, false found: how often the annotator says True of what Dawid-Skene takes for true, and False of "
    "false. competence: share of judgments that MACE takes for known rather than guessed."
)


def annotator_table(document: Document) -> Table:
    rows = [
        Row(tuple(_annotator_values(annotator)), about={"annotator": annotator["annotator"]})
        for annotator in document["annotators"]
    ]
    columns = (
        Column("annotator"),
        *of_kind(Kind.COUNT, "judgments", "True", "False", "Unjudgeable"),
        Column("median s", Kind.NUMBER),
        Column("right on gold", Kind.SHARE),
        Column("gold", Kind.COUNT),
        *of_kind(Kind.SHARE, "true found", "false found", "competence"),
    )
    has_models = any(annotator.get("dawid_skene") for annotator in document["annotators"])
    return Table("annotators", "Annotators", columns, tuple(rows), (NOTE_ON_MODELS,) if has_models else ())


def _annotator_values(annotator: Mapping[str, Any]) -> Iterable[Any]:
    yield from (annotator[key] for key in ("annotator", "n_judgments", "true", "false", "unjudgeable"))
    yield annotator.get("median_seconds")
    gold = annotator.get("gold") or {}
    yield gold.get("accuracy")
    yield gold.get("n") or None
    dawid_skene = annotator.get("dawid_skene") or {}
    yield dawid_skene.get("true_accuracy")
    yield dawid_skene.get("false_accuracy")
    yield (annotator.get("mace") or {}).get("competence")


def fits_matrix(document: Document) -> bool:
    return len(document["annotators"]) <= MOST_ANNOTATORS_IN_MATRIX


def pair_table(document: Document) -> Table:
    """How often each two annotators agree; empty if nobody shares a statement or there are too many for a table."""
    codes = [annotator["annotator"] for annotator in document["annotators"]]
    columns = (Column("annotator"), *(Column(code, Kind.SHARE) for code in codes))
    rows: list[Row] = []
    if document["annotator_pairs"] and fits_matrix(document):
        agreement = {frozenset((pair["a"], pair["b"])): pair["agreement"] for pair in document["annotator_pairs"]}
        rows = [
            Row((code, *(agreement.get(frozenset((code, other))) for other in codes)), about={"annotator": code})
            for code in codes
        ]
    notes = ("Share of alike labels on the statements that both judged.",)
    return Table("annotator-pairs", "How often each two annotators agree", columns, tuple(rows), notes)


def annotator_model_table(document: Document) -> Table:
    models = document.get("annotator_models", [])
    rows = [
        Row((
            MODEL_TITLES.get(model["model"], model["model"]),
            *(model[key] for key in ("accepted", "rejected", "undecided", "n_compared", "n_differing")),
            (model.get("gold") or {}).get("model_correct"),
            (model.get("gold") or {}).get("majority_correct"),
            (model.get("gold") or {}).get("p"),
            model["reason"],
        ))
        for model in models
    ]  # fmt: skip
    counts = ("accepted", "rejected", "undecided", "compared", "differing", "right on gold", "majority right on gold")
    columns = (Column("model"), *(Column(name, Kind.COUNT) for name in counts), Column("p", Kind.P), Column("why not"))
    notes = tuple(model["sentence"] for model in models if model["sentence"])
    return Table("annotator-models", "Verdicts of models of annotators", columns, tuple(rows), notes)
