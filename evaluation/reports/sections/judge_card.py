"""Judge card: quality of an LM judge on statements with human verdicts, and its agreement with other runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.evidence.evidence import Evidence
from evaluation.evidence.judges import JudgeAnswers, OtherRun, relation_of_statement, statement_weights
from evaluation.rendering.documents import Document
from kgharvest.statistics.arrays import ACCEPTED, FALSE, LABELS, TRUE, UNDECIDED, VERDICTS, Flags
from kgharvest.statistics.judge_quality import (
    EPSILON,
    N_BINS,
    agreement_with_people,
    alternative_annotator_test,
    calibration,
    change_between,
    effective_votes,
    flips,
    judge_errors,
)
from kgharvest.statistics.paired_tests import holm
from kgharvest.statistics.rates import accuracy_by_score
from kgharvest.tables.table import Column, Kind, Row, Table, of_kind

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
        *map(Column, ("what differs", "other run")),
        *of_kind(Kind.COUNT, "tuples", "other labels"),
        *of_kind(Kind.SHARE, *ERROR_KEYS, group="share of other labels"),
        *of_kind(Kind.COEFFICIENT, *ERROR_KEYS, group="kappa"),
        *of_kind(Kind.POINTS, *ERROR_KEYS, group="more True"),
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
        *map(Column, ("compared with", "what differs")),
        *of_kind(Kind.COUNT, "tuples", "other labels"),
        *of_kind(Kind.SHARE, "share", "low", "high"),
        Column("more True", Kind.POINTS),
    )
    return Table(
        "judge-steadiness", titled(card, "What changes the judge's mind"), columns, tuple(rows), (NOTE_ON_REST,)
    )


METHOD = (
    "Judge card: sensitivity, specificity and Youden's J of an LM's labels against people's verdicts, statements "
    "weighted by one over their inclusion probability (Wilson at Kish's effective size, Newcombe for J); agreement of "
    "the judge, and of each person, with the most frequent label of the others; the alternative annotator test "
    "(Calderon, Reichart and Dror 2025); flips between repeats, and between runs that differ in one thing (McNemar, "
    "exact, adjusted after Holm; Cohen's kappa); calibration over ten bins of equal width; effective votes of a panel "
    "from the correlations of errors (Kish 1965)."
)
JUDGE_LABELS = (*LABELS, "unparsable")
NO_VERDICTS = "People have decided no statement that the judge labelled: nothing is known yet of how good it is."
NO_PROBABILITY = "This judge gives no probability: ask a chat model with repeats, whose share of True is one."
ASKED_ONCE = "Every tuple was asked once: start a run with repeats to see how steady the judge is."
ALL_RELATIONS = "all"


def card_entry(evidence: Evidence, answers: JudgeAnswers) -> dict[str, Any]:
    """Return `judge_card` of docs/report-json.md."""
    is_labelled = answers.label >= 0
    has_verdict = is_labelled & evidence.is_complete
    votes = answers.repeats.sum(axis=1)
    return {
        **answers.described,
        "n_asked": len(votes),
        "labels": dict(zip(JUDGE_LABELS, answers.repeats.sum(axis=0).tolist(), strict=True)),
        "n_statements": int(is_labelled.sum()),
        "n_verdicts": int(has_verdict.sum()),
        "reason": None if has_verdict.any() else NO_VERDICTS,
        "relations": list(_by_relation(evidence, answers, has_verdict)),
        "calibration": _calibration_entry(evidence, answers, has_verdict),
        "flips": {"reason": ASKED_ONCE} if (steadiness := flips(answers.repeats)) is None else steadiness._asdict(),
        "other_runs": change_entries(answers.others),
        "alternative_annotator": _alternative_annotator(evidence, answers),
        "panel": _panel_entry(evidence, answers),
    }


def _by_relation(evidence: Evidence, answers: JudgeAnswers, has_verdict: Flags) -> Iterator[dict[str, Any]]:
    """Yield all relations together, then each."""
    names, relation = relation_of_statement(evidence)
    weight = statement_weights(evidence)
    everything = np.ones(evidence.n_tasks, dtype=bool)
    parts = [(ALL_RELATIONS, everything)]
    if len(names) > 1:
        parts += [(name, relation == number) for number, name in enumerate(names)]
    for name, is_in in parts:
        judged = has_verdict & is_in
        errors = judge_errors(evidence.verdict[judged], answers.label[judged], weight[judged])
        own = is_in[evidence.judgments.task]
        agreement = agreement_with_people(evidence.judgments.task[own], evidence.judgments.label[own], answers.label)
        yield {
            "relation": None if name == ALL_RELATIONS else name,
            "n": int(judged.sum()),
            **{part: getattr(errors, part)._asdict() for part in ("sensitivity", "specificity", "youden_j")},
            "confusion": {
                verdict: dict(zip(JUDGE_LABELS, row, strict=True))
                for verdict, row in zip(VERDICTS, errors.confusion.tolist(), strict=False)
            },
            "agreement": {
                "n": agreement.n,
                "judge": agreement.judge._asdict(),
                "people": agreement.people._asdict(),
            },
        }


def _calibration_entry(evidence: Evidence, answers: JudgeAnswers, has_verdict: Flags) -> dict[str, Any]:
    """Return calibration of probabilities; of a score judge, whose scores are none, the accuracy by its score."""
    weight, is_accepted = statement_weights(evidence), evidence.verdict == ACCEPTED
    has_score = has_verdict & ~np.isnan(answers.score)
    if has_score.any():
        score, ones = answers.score[has_score], np.ones(int(has_score.sum()))
        bins = accuracy_by_score(score, ones, is_accepted[has_score].astype(np.float64), weight[has_score])
        return {"scores": [part._asdict() for part in bins]}
    has_probability = has_verdict & ~np.isnan(answers.probability)
    result = calibration(answers.probability[has_probability], is_accepted[has_probability], weight[has_probability])
    if result is None:
        is_known = bool((~np.isnan(answers.probability)).any())
        return {"reason": NO_VERDICTS if is_known else NO_PROBABILITY}
    return {**result._asdict(), "bins": [part._asdict() for part in result.bins]}


def _alternative_annotator(evidence: Evidence, answers: JudgeAnswers) -> list[dict[str, Any]]:
    """Return the test for each kind of annotator. A third person was asked only in disputes, so it is left out."""
    task, annotator, label, _ = evidence.first_two.judgments
    entries = []
    for kind, epsilon in EPSILON.items():
        test = alternative_annotator_test(task, annotator, label, answers.label, epsilon)
        rows = [
            {**row._asdict(), "annotator": evidence.annotators[row.annotator], "is_won": row.is_won}
            for row in test.annotators
        ]
        entries.append({"kind": kind, **test._asdict(), "annotators": rows, "is_passed": test.is_passed})
    return entries


def _panel_entry(evidence: Evidence, answers: JudgeAnswers) -> dict[str, Any] | None:
    if answers.panel is None:
        return None
    label = answers.panel.label
    decided = (label >= 0).all(axis=1) & (evidence.verdict < UNDECIDED)
    right = np.where(evidence.verdict[decided] == ACCEPTED, TRUE, FALSE)[:, None]
    votes = effective_votes(label[decided] != right)
    return {"panel": answers.panel.name, "runs": list(answers.panel.runs), **votes._asdict()}


# -- tables ------------------------------------------------------------------------------------------------------------


def judge_table(document: Document) -> Table:
    card = card_of(document)
    rows = [
        Row(
            (
                part["relation"] or "all relations",
                part["n"],
                *(part[name][key] for name in ("sensitivity", "specificity", "youden_j") for key in ERROR_KEYS),
                *(part["agreement"][who][key] for key in ("percent", "alpha") for who in ("judge", "people")),
            ),
            is_summary=part["relation"] is None and len(card["relations"]) > 1,
        )
        for part in card.get("relations", [])
    ]
    columns = (
        Column("relation"),
        Column("verdicts", Kind.COUNT),
        *(
            Column(key, Kind.COEFFICIENT if name == "Youden's J" else Kind.SHARE, name)
            for name in ("sensitivity", "specificity", "Youden's J")
            for key in ERROR_KEYS
        ),
        *(Column(who, Kind.SHARE, "agrees with people") for who in ("judge", "a person")),
        *(Column(who, Kind.COEFFICIENT, "alpha with people") for who in ("judge", "a person")),
    )
    notes = (
        card.get("reason") or "",
        "Sensitivity: of what people accept, the share that the judge calls True; specificity: of what they reject, "
        "the share that it calls False; J: their sum less 1, 0 for a judge who tells nothing. Agreement: with the most "
        "frequent label of the other people of a statement, of the judge and of the person left out, on the same "
        "statements.",
    )
    return Table("judge", titled(card, "How good the judge is"), columns, tuple(rows), tuple(filter(None, notes)))


ERROR_KEYS = ("value", "low", "high")


def confusion_table(document: Document) -> Table:
    card = card_of(document)
    rows = [
        Row((verdict, *(counts[label] for label in JUDGE_LABELS)))
        for part in card.get("relations", [])[:1]
        for verdict, counts in part["confusion"].items()
        if part["n"]
    ]
    columns = (Column("people's verdict"), *(Column(label, Kind.COUNT, "judge says") for label in JUDGE_LABELS))
    return Table("judge-confusion", titled(card, "People's verdicts and the judge's labels"), columns, tuple(rows))


def alternative_annotator_table(document: Document) -> Table:
    card = card_of(document)
    tests = card.get("alternative_annotator", [])
    rows = [
        Row((
            test["kind"], test["epsilon"], len(test["annotators"]) or None, test["omega"], test["rho"],
            {True: "yes", False: "no", None: None}[test["is_passed"]],
        ))
        for test in tests
    ]  # fmt: skip
    columns = (
        Column("if people are"),
        Column("ε", Kind.SHARE),
        Column("people", Kind.COUNT),
        *of_kind(Kind.SHARE, "ω, won against", "ρ, as good as"),
        Column("passed"),
    )
    reasons = {test["reason"] for test in tests if test["reason"]}
    notes = (
        *reasons,
        "Alternative annotator test (Calderon, Reichart and Dror 2025): whether the judge agrees with the others about "
        "as well as each person left out in turn, but for ε, which its lower price is worth. ω: against how many "
        "it wins (Benjamini and Yekutieli, 5 %); passed from .5 on. ρ: on what share of statements it is as good.",
    )
    return Table("judge-alternative", titled(card, "Alternative annotator test"), columns, tuple(rows), notes)


def calibration_table(document: Document) -> Table:
    card = card_of(document)
    result = card.get("calibration") or {}
    rows = [
        Row((f"{part['low']:.1f} to {part['high']:.1f}", part["n"], part["probability"], part["accepted"]))
        for part in result.get("bins", [])
    ]
    columns = (
        Column("probability of True"),
        Column("statements", Kind.COUNT),
        *of_kind(Kind.SHARE, "mean probability", "accepted"),
    )
    note = (
        f"Expected calibration error {result['error']:.3f} over {N_BINS} bins of equal width, Brier score "
        f"{result['brier']:.3f}. With few statements a bin the error is too large even for a calibrated judge."
        if rows
        else ""
    )
    return Table("judge-calibration", titled(card, "Calibration"), columns, tuple(rows), (note,))


def score_table(document: Document) -> Table:
    """Accuracy by the score of a score judge: where to set its threshold."""
    card = card_of(document)
    rows = [
        Row((part["score_low"], part["score_high"], part["n"], part["accuracy"], part["low"], part["high"]))
        for part in (card.get("calibration") or {}).get("scores", [])
    ]
    columns = (
        *of_kind(Kind.NUMBER, "from", "to", group="score, nats"),
        Column("statements", Kind.COUNT),
        *of_kind(Kind.SHARE, *ERROR_KEYS, group="accepted"),
    )
    note = (
        f"Its threshold is {card['threshold']:g} nats. Another one that these verdicts suggest needs verdicts of "
        "its own to be judged by."
        if rows
        else ""
    )
    return Table("judge-scores", titled(card, "Accuracy by the judge's score"), columns, tuple(rows), (note,))


def panel_table(document: Document) -> Table:
    card = card_of(document)
    panel = card.get("panel") if card else None
    rows = []
    if panel:
        names = ", ".join(panel["runs"])
        rows = [Row((panel["panel"], names, panel["n"], panel["kish"], panel["eigenvalue"], panel["reason"]))]
    columns = (
        *map(Column, ("panel", "judges")),
        Column("statements", Kind.COUNT),
        *of_kind(Kind.NUMBER, "votes (Kish)", "votes (eigenvalues)"),
        Column("why not"),
    )
    notes = (
        "Judges that err on the same statements are fewer votes than judges: M / (1 + (M − 1) r) with r the mean "
        "correlation of their errors, and the squared sum of the eigenvalues of the correlations over the sum of their "
        "squares.",
    )
    return Table("judge-panel", titled(card, "Effective votes of the panel"), columns, tuple(rows), notes)


STEADINESS_TABLES = (effect_table, steadiness_table)  # these need no verdicts by people
TABLES = (
    judge_table, confusion_table, alternative_annotator_table, effect_table, steadiness_table, calibration_table,
    score_table, panel_table,
)  # fmt: skip
