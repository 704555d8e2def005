"""Judge card: quality of an LM judge on statements with human verdicts, and its agreement with other runs."""

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
    "Runs that differ from this run in one option, on the tuples labeled by both. An answer without a label counts as "
    "a separate label. Kappa: Cohen's kappa, 1 for identical labels. Change in True rate: True rate of the other run "
    "minus that of this run, with an exact McNemar test (p adjusted by Holm's method for all these runs). Compare the "
    "changes with the differences between repeats, which are due to chance. Each tuple is sent in a separate request, "
    "so the order of statements has no effect."
)
NOTE_ON_REST = (
    "Repeats: tuples with different labels across repeats, and the probability that two repeats differ. Other runs: "
    "runs that differ in several options, and the tuples with changed labels."
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
            "more_true": change.more_true,
            "p": change.p,
            "p_holm": adjusted.get(number),
        }
        for number, (run, change) in enumerate(changes)
    ]


def card_of(document: Document) -> Mapping[str, Any]:
    card: Mapping[str, Any] = document.get("judge_card") or {}
    return card


def judge_name(card: Mapping[str, Any]) -> str:
    """Return the name of a judge with its LM."""
    return f"{card['name']} ({card['model']})"


def titled(card: Mapping[str, Any], title: str) -> str:
    return f"{title}: judge {judge_name(card)}" if card else title


def effect_table(document: Document) -> Table:
    """Return the table of effects of single options, such as wording and order, from runs that differ in one option."""
    card = card_of(document)
    rows = [
        Row((
            run["differs"][0], f"{run['run']} ({run['model']})", run["n"], run["n_differing"],
            *(run[key] for key in ("share", "low", "high")), *(run["kappa"][key] for key in ERROR_KEYS),
            *(run[key] for key in ("more_true", "p_holm")),
        ))
        for run in card.get("other_runs", [])
        if len(run["differs"]) == 1 and "kappa" in run
    ]  # fmt: skip
    columns = (
        *map(Column, ("changed option", "other run")),
        *of_kind(Kind.COUNT, "tuples", "changed labels"),
        *of_kind(Kind.SHARE, *ERROR_KEYS, group="share of changed labels"),
        *of_kind(Kind.COEFFICIENT, *ERROR_KEYS, group="kappa"),
        Column("change in True rate", Kind.POINTS),
        Column("p (Holm)", Kind.P),
    )
    return Table("judge-effects", titled(card, "Effect of wording and order"), columns, tuple(rows), (NOTE_ON_EFFECTS,))


def steadiness_table(document: Document) -> Table:
    """Return the table of label changes between repeats, and between runs that differ in several options."""
    card = card_of(document)
    rows = []
    if card and (repeated := card["flips"]).get("n"):
        changing = repeated["n_changing"]
        rows.append(Row(("repeats", "chance", repeated["n"], changing, repeated["flip_rate"], None, None, None)))
    rows += [
        Row((
            f"{run['run']} ({run['model']})", ", ".join(run["differs"]) or "no recorded option", run["n"],
            run["n_differing"], run["share"], run["low"], run["high"], run["more_true"],
        ))
        for run in card.get("other_runs", [])
        if len(run["differs"]) != 1 or "kappa" not in run
    ]  # fmt: skip
    columns = (
        *map(Column, ("compared with", "changed option")),
        *of_kind(Kind.COUNT, "tuples", "changed labels"),
        *of_kind(Kind.SHARE, "share", "low", "high"),
        Column("change in True rate", Kind.POINTS),
    )
    return Table("judge-steadiness", titled(card, "Stability of the judge"), columns, tuple(rows), (NOTE_ON_REST,))


METHOD_PARTS = {
    "judge_quality": (
        "Judge quality is measured by the sensitivity, specificity, and Youden's J of the LM judge's labels, compared "
        "with human verdicts. Statements are weighted by their inverse inclusion probability. The intervals are "
        "Wilson's intervals at Kish's effective sample size and, for J, Newcombe's. The agreement of the judge, and "
        "of each annotator, is measured against the most frequent label of the other annotators."
    ),
    "alternative_annotator": ("The alternative annotator test is that of Calderon, Reichart, and Dror (2025)."),
    "label_changes": (
        "Label changes between repeats of the judge, and between runs that differ in one option, are tested by "
        "McNemar's exact test, adjusted by Holm's method, and measured by Cohen's kappa."
    ),
    "calibration": ("The calibration of the judge is computed in ten bins of equal width."),
    "panel": (
        "The effective votes of a panel of judges are computed from the correlations of the judges' errors (Kish 1965)."
    ),
}
JUDGE_LABELS = (*LABELS, "unparsable")
NO_VERDICTS = "No statement labeled by the judge has a human verdict yet, so its quality is unknown."
NO_PROBABILITY = (
    "This judge gives no probability. Run a chat model with repeats: its share of True answers serves as a probability."
)
ASKED_ONCE = "Every tuple was labeled once. Start a run with repeats to measure the stability of the judge."
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
    """Yield one entry for all relations together, then one for each relation."""
    names, relation = relation_of_statement(evidence)
    weight = statement_weights(evidence)
    everything = np.ones(evidence.n_tasks, dtype=bool)
    parts = [(ALL_RELATIONS, everything)]
    if len(names) > 1:
        parts += [(name, relation == number) for number, name in enumerate(names)]
    for name, is_in in parts:
        judged = has_verdict & is_in
        errors = judge_errors(evidence.verdict[judged], answers.label[judged], weight[judged])
        chosen = is_in[evidence.judgments.task]
        labels = evidence.judgments.task[chosen], evidence.judgments.label[chosen]
        agreement = agreement_with_people(*labels, answers.label)
        yield {
            "relation": None if name == ALL_RELATIONS else name,
            "n": int(judged.sum()),
            **{part: getattr(errors, part)._asdict() for part in ("sensitivity", "specificity", "youden_j")},
            "confusion": {
                verdict: dict(zip(JUDGE_LABELS, row, strict=True))
                for verdict, row in zip(VERDICTS, errors.confusion.tolist(), strict=False)
            },
            "agreement": {"n": agreement.n, "judge": agreement.judge._asdict(), "people": agreement.people._asdict()},
        }


def _calibration_entry(evidence: Evidence, answers: JudgeAnswers, has_verdict: Flags) -> dict[str, Any]:
    """Return the calibration of the judge's probabilities. For a score judge, return the accuracy by score."""
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
    """Return the test for each kind of annotator. Third judgments are excluded: only disputed statements have them."""
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
        "Sensitivity: share of accepted statements that the judge labels True. Specificity: share of rejected "
        "statements that it labels False. J: sensitivity + specificity − 1, 0 for an uninformative judge. Agreement: "
        "each person who judged a statement is omitted in turn. The judge and the omitted person are compared with the "
        "most frequent label of the other people, on the same statements.",
    )
    return Table("judge", titled(card, "Judge quality"), columns, tuple(rows), tuple(filter(None, notes)))


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
        "Alternative annotator test (Calderon, Reichart, and Dror 2025): each person is omitted in turn. The judge "
        "wins if it agrees with the remaining people at least as well as the omitted person, with a tolerance ε for "
        "its lower cost. ω: share of people against whom the judge wins (Benjamini and Yekutieli, 5 %); the test is "
        "passed if ω is at least .5. ρ: share of statements on which the judge is at least as good as the person.",
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
        f"{result['brier']:.3f}. With few statements per bin, this error is inflated even for a calibrated judge."
        if rows
        else ""
    )
    return Table("judge-calibration", titled(card, "Calibration"), columns, tuple(rows), (note,))


def score_table(document: Document) -> Table:
    """Return the table of accuracy by the score of a score judge. It helps to choose the judge's threshold."""
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
        f"The threshold is {card['threshold']:g} nats. A threshold chosen from these verdicts must be evaluated on new "
        "verdicts."
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
        Column("reason"),
    )
    notes = (
        "Judges that err on the same statements count as fewer votes. Kish: M / (1 + (M − 1) r) for M judges with mean "
        "error correlation r. Eigenvalues: squared sum of the eigenvalues of the error correlations divided by the sum "
        "of their squares.",
    )
    return Table("judge-panel", titled(card, "Effective votes of the panel"), columns, tuple(rows), notes)


STEADINESS_TABLES = (effect_table, steadiness_table)  # these tables require no human verdicts
TABLES = (
    judge_table, confusion_table, alternative_annotator_table, effect_table, steadiness_table, calibration_table,
    score_table, panel_table,
)  # fmt: skip
