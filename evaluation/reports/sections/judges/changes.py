"""What changes a judge's mind: chance, wording, order, seed, another LM; runs of one round beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.evidence.judge_answers import OtherRun
from evaluation.rendering.documents import Document
from kgharvest.statistics.judge_quality import change_between
from kgharvest.statistics.paired_tests import holm
from kgharvest.tables.table import Column, Kind, Row, Table

ERROR_KEYS = ("value", "low", "high")
NOTE_ON_EFFECTS = (
    "Runs that differ from this one in one thing only, on the tuples that both labelled; an answer without a label "
    "counts as one of its own. Kappa: Cohen's, 1 where the thing changes nothing. More True: how many more tuples the "
    "other run calls True; p (McNemar, exact) that it is as likely to call them True as not to, adjusted after Holm "
    "for all of them. What of it is chance shows between repeats. Each tuple is asked about in a request of its own, "
    "so that statements have no order."
)
NOTE_ON_REST = (
    "Repeats: tuples whose repeats are not all alike, and how likely two repeats differ. Other runs: those that differ "
    "in several things, and the tuples that they label otherwise."
)


def change_entries(others: Sequence[OtherRun]) -> list[dict[str, Any]]:
    """Return `other_runs` of docs/report-json.md."""
    changes = [(run, change) for run in others if (change := change_between(run.own, run.other)) is not None]
    tested = [number for number, (run, change) in enumerate(changes) if len(run.differs) == 1 and change.p is not None]
    adjusted = dict(zip(tested, holm([changes[number][1].p or 0.0 for number in tested]), strict=True))
    return [
        {
            "run": run.name,
            "model": run.model,
            "differs": list(run.differs),
            "n": change.n,
            "n_differing": change.n_differing,
            **dict(zip(("share", "low", "high"), change.share[:3], strict=True)),
            "kappa": change.kappa._asdict(),
            "n_to_true": change.n_to_true,
            "n_from_true": change.n_from_true,
            "more_true": change.more_true.value,
            "more_true_low": change.more_true.low,
            "more_true_high": change.more_true.high,
            "p": change.p,
            "p_holm": adjusted.get(number),
        }
        for number, (run, change) in enumerate(changes)
    ]


def card_of(document: Document) -> Mapping[str, Any]:
    card: Mapping[str, Any] = document.get("judge_card") or {}
    return card


def judge_name(card: Mapping[str, Any]) -> str:
    """Return a judge with its LM, as it is named wherever it shows."""
    return f"{card['name']} ({card['model']})"


def titled(card: Mapping[str, Any], title: str) -> str:
    return f"{title}: judge {judge_name(card)}" if card else title


def effect_table(document: Document) -> Table:
    """What wording, order and the like change by themselves: runs that differ in one thing."""
    card = card_of(document)
    rows = [
        Row((
            run["differs"][0], f"{run['run']} ({run['model']})", run["n"], run["n_differing"],
            *(run[key] for key in ("share", "low", "high")), *(run["kappa"][key] for key in ERROR_KEYS),
            *(run[key] for key in ("more_true", "more_true_low", "more_true_high", "p_holm")),
        ))
        for run in card.get("other_runs", [])
        if len(run["differs"]) == 1 and "kappa" in run
    ]  # fmt: skip
    columns = (
        Column("what differs"),
        Column("other run"),
        Column("tuples", Kind.COUNT),
        Column("other labels", Kind.COUNT),
        *(Column(title, Kind.SHARE, "share of other labels") for title in ERROR_KEYS),
        *(Column(title, Kind.COEFFICIENT, "kappa") for title in ERROR_KEYS),
        *(Column(title, Kind.POINTS, "more True") for title in ERROR_KEYS),
        Column("p (Holm)", Kind.P),
    )
    return Table("judge-effects", titled(card, "Effect of wording and order"), columns, tuple(rows), (NOTE_ON_EFFECTS,))


def steadiness_table(document: Document) -> Table:
    """How labels hang on chance, and on several things at once."""
    card = card_of(document)
    rows = []
    if card and (repeated := card["flips"]).get("n"):
        changing = repeated["n_changing"]
        rows.append(
            Row(("its own repeats", "chance", repeated["n"], changing, repeated["flip_rate"], None, None, None))
        )
    rows += [
        Row((
            f"{run['run']} ({run['model']})", ", ".join(run["differs"]) or "nothing that is recorded", run["n"],
            run["n_differing"], run["share"], run["low"], run["high"], run["more_true"],
        ))
        for run in card.get("other_runs", [])
        if len(run["differs"]) != 1 or "kappa" not in run
    ]  # fmt: skip
    columns = (
        Column("compared with"),
        Column("what differs"),
        Column("tuples", Kind.COUNT),
        Column("other labels", Kind.COUNT),
        Column("share", Kind.SHARE),
        Column("low", Kind.SHARE),
        Column("high", Kind.SHARE),
        Column("more True", Kind.POINTS),
    )
    return Table(
        "judge-steadiness", titled(card, "What changes the judge's mind"), columns, tuple(rows), (NOTE_ON_REST,)
    )


TABLES = (effect_table, steadiness_table)  # which rest on no verdict of people
