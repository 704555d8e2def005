"""Tables of what the numbers are worth: comparisons, agreement, annotators, sensitivity, plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evaluation.rendering.tables import Column, Document, Kind, Row, Table, name_of

MOST_ANNOTATORS_IN_MATRIX = 20  # as many columns as a page can hold


# -- comparisons -------------------------------------------------------------------------------------------------------


def comparison_table(document: Document) -> Table:
    rows = [
        Row((
            common_of(comparison),
            comparison["a"],
            comparison["b"],
            comparison["n_relations"],
            comparison["difference"],
            comparison["low"],
            comparison["high"],
            comparison["p_sign_flip"],
            comparison["p_holm"],
        ), about=common_about(comparison))
        for comparison in document["comparisons"]
    ]  # fmt: skip
    columns = (
        Column("in both"),
        Column("first"),
        Column("second"),
        Column("relations", Kind.COUNT),
        Column("difference", Kind.POINTS),
        Column("low", Kind.POINTS),
        Column("high", Kind.POINTS),
        Column("p", Kind.P),
        Column("p (Holm)", Kind.P),
    )
    sentences = tuple(comparison["sentence"] for comparison in document["comparisons"])
    return Table("comparisons", "Comparisons", columns, tuple(rows), sentences)


def common_of(comparison: Mapping[str, Any]) -> str:
    return name_of(comparison.get(common_key(comparison)))


def common_key(comparison: Mapping[str, Any]) -> str:
    return "model" if comparison["kind"] == "settings" else "setting"


def common_about(comparison: Mapping[str, Any]) -> dict[str, str | None]:
    """Name the statements of both sides."""
    return {common_key(comparison): comparison.get(common_key(comparison))}


# -- agreement ---------------------------------------------------------------------------------------------------------

AGREEMENT_COLUMNS = (
    Column("value", Kind.COEFFICIENT),
    Column("low", Kind.COEFFICIENT),
    Column("high", Kind.COEFFICIENT),
    Column("statements", Kind.COUNT),
    Column("why not"),
)


def agreement_table(document: Document) -> Table:
    alphas = {
        "Krippendorff's alpha": document["alpha"],
        "Krippendorff's alpha without Unjudgeable": document["alpha_without_unjudgeable"],
    }
    rows = [
        Row((name, alpha["value"], alpha["low"], alpha["high"], alpha["n_units"], alpha["reason"]), about={})
        for name, alpha in alphas.items()
    ]
    kappa = document.get("fleiss_kappa", {"value": None, "reason": None})
    rows.append(Row(("Fleiss' kappa", kappa["value"], None, None, None, kappa["reason"]), about={}))
    percent = document["percent_agreement"]
    why_not = document["alpha"]["reason"] if percent is None else None  # both need a statement with two judgments
    rows.append(Row(("percent agreement", percent, None, None, None, why_not), about={}))
    if stability := document.get("verdict_stability"):
        name = "verdicts that a fresh panel would change"
        values = (name, stability["flips"], stability["low"], stability["high"], None, stability["reason"])
        rows.append(Row(values, about={}))
    return Table("agreement", "Agreement", (Column("measure"), *AGREEMENT_COLUMNS), tuple(rows))


def agreement_parts_table(document: Document) -> Table:
    rows = [
        Row((
            part["relation"] if part["by"] == "relation" else side_of(part),
            part["alpha"]["value"],
            part["alpha"]["low"],
            part["alpha"]["high"],
            part["percent_agreement"],
            (part.get("verdict_stability") or {}).get("flips"),
            part["n_tasks"],
            part["n_judgments"],
        ), about=_side(part) | {"relation": part.get("relation")})
        for part in document.get("agreement", [])
    ]  # fmt: skip
    columns = (
        Column("relation, or LM and setting"),
        Column("alpha", Kind.COEFFICIENT),
        Column("low", Kind.COEFFICIENT),
        Column("high", Kind.COEFFICIENT),
        Column("percent agreement", Kind.SHARE),
        Column("would change", Kind.SHARE),
        Column("statements", Kind.COUNT),
        Column("judgments", Kind.COUNT),
    )
    notes = ("would change: verdicts that a fresh panel of the same size is expected to change.",)
    return Table("agreement-parts", "Agreement per relation and per LM and setting", columns, tuple(rows), notes)


def _side(part: Mapping[str, Any]) -> dict[str, str | None]:
    return {"model": part.get("model"), "setting": part.get("setting")}


def side_of(part: Mapping[str, Any]) -> str:
    return f"{name_of(part['model'])} · {name_of(part['setting'])}"


# -- annotators --------------------------------------------------------------------------------------------------------


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
        Column("judgments", Kind.COUNT),
        Column("True", Kind.COUNT),
        Column("False", Kind.COUNT),
        Column("Unjudgeable", Kind.COUNT),
        Column("median s", Kind.NUMBER),
        Column("right on gold", Kind.SHARE),
        Column("gold", Kind.COUNT),
        Column("true found", Kind.SHARE),
        Column("false found", Kind.SHARE),
        Column("competence", Kind.SHARE),
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


def pair_table(document: Document) -> Table:
    """How often each two annotators agree; empty if nobody shares a statement or there are too many for a table."""
    codes = [annotator["annotator"] for annotator in document["annotators"]]
    columns = (Column("annotator"), *(Column(code, Kind.SHARE) for code in codes))
    rows: list[Row] = []
    if document["annotator_pairs"] and len(codes) <= MOST_ANNOTATORS_IN_MATRIX:
        agreement = {frozenset((pair["a"], pair["b"])): pair["agreement"] for pair in document["annotator_pairs"]}
        rows = [
            Row((code, *(agreement.get(frozenset((code, other))) for other in codes)), about={"annotator": code})
            for code in codes
        ]
    notes = ("Share of alike labels on the statements that both judged.",)
    return Table("annotator-pairs", "How often each two annotators agree", columns, tuple(rows), notes)


MODEL_TITLES = {"dawid_skene": "Dawid-Skene", "mace": "MACE"}


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


# -- plans -------------------------------------------------------------------------------------------------------------


def plan_table(document: Document) -> Table:
    plans = document.get("planner") or {}
    rows = [
        Row(
            (side_of(total), *(total[key] for key in ("half_width", "target", "statements", "judgments", "reason"))),
            about=_side(total),
        )
        for total in plans.get("totals", [])
    ]
    columns = (
        Column("LM and setting"),
        Column("± now", Kind.SHARE),
        Column("± wanted", Kind.SHARE),
        Column("statements", Kind.COUNT),
        Column("judgments", Kind.COUNT),
        Column("why not"),
    )
    sentences = [plan["sentence"] for part in ("totals", "comparisons") for plan in plans.get(part, [])]
    return Table("plan", "What it takes to know more", columns, tuple(rows), tuple(filter(None, sentences)))
