"""Preregistration section of reports: the frozen plan, deviations, and outcomes of hypotheses."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from annotation.models import Round
from evaluation.evidence.evidence import Evidence
from evaluation.rendering.documents import Document, lm_and_setting
from evaluation.reports.report_sections import Facts, ReportSection
from evaluation.reports.sections.comparisons import sides_of
from kgharvest.audit.tables import canonical_json, sha256
from kgharvest.contrib.publishing.preregistration.plan import (
    SIDES,
    TEXTS,
    Expects,
    PlanSerializer,
    sides_of_plan,
    whole_hypothesis,
)
from kgharvest.contrib.publishing.preregistration.services import state_of, stored_parts
from kgharvest.pages.number_format import counted
from kgharvest.statistics.rates import SIGNIFICANCE
from kgharvest.tables.table import Column, Kind, Row, Table

METHOD = (
    "The comparisons in the frozen document of a preregistration form one family, and all other comparisons, "
    "which are exploratory, form another. p is adjusted by Holm's method within each family. If the adjusted p of "
    "a comparison is below .05, a hypothesis that one side is more accurate, or that two sides differ, is "
    "supported if the difference has the expected sign, and not supported if the sign is opposite. Equivalence is "
    "supported if two one-sided tests at .05 show a difference within the planned margin. It is not supported if "
    "the 95 % interval is beyond the margin. Otherwise, the outcome is undecided. Deviations are values that "
    "differ from the frozen document, exclusions of people before a limit of the round paused them, and reports "
    "or ends of judging before the closing rule of the round applied."
)
SUPPORTED, NOT_SUPPORTED, UNDECIDED = "supported", "not supported", "undecided"
SHA256 = re.compile(r"[0-9a-f]{64}")
NOT_COMPARED = "Not compared: too few shared relations have a verdict."


# Deviations, computed from documents without a database

# Hashes of texts that the state also contains in full. If such a text has changed, the hash is skipped, so that only
# one deviation is reported.
HASH_OF = {"instructions.round_sha256": "options.instructions", "instructions.consent_sha256": "options.consent"}
# Hashes of earlier wordings of the same method. A preregistration with one of these hashes does not deviate.
METHOD_PATH = "analysis.method_sha256"
EARLIER_WORDINGS = {
    "c8460897190de13af2fd250555f7507ead324dda5b8fd274a3e98dca8dcff2e4",
    "c18fe9102c55f7412719c14add282089936141a2fa296f0156e7dbdb4bd1054f",
    "094b78ebf0c6ed7566e414ff1e1f89a9ddf497156df1eefc9d0524acb73f1764",
    "dc1b30455461c1b66a385d04f80c30dca867aa1914df4d3b9d209cb128e8b11e",
    "d1737eaabf43e2d2e420e3f09828faaf15b4d8029073f0d8404bb625ae0f07b3",
}
LONGEST = 300  # maximum number of characters of a displayed value


class Deviation(NamedTuple):
    """A value that differs from the preregistration.

    path: path of the value, for example options.closes_when. planned, actual: the frozen and the current value as text,
    None if absent.
    """

    path: str
    planned: str | None
    actual: str | None


def deviations(planned: Mapping[str, Any], state: Mapping[str, Any], conduct: Mapping[str, Any]) -> list[Deviation]:
    """Return all deviations. planned: frozen document. state, conduct: state and conduct of the round as reported."""
    options = {name: value for name, value in state["options"].items() if name in planned["state"]["options"]}
    changed_values = [
        deviation
        for deviation in differences(planned["state"], {**state, "options": options})  # without options added later
        if deviation.path != METHOD_PATH or deviation.planned not in EARLIER_WORDINGS
    ]
    paths = {deviation.path for deviation in changed_values}
    return [
        *(deviation for deviation in changed_values if HASH_OF.get(deviation.path) not in paths),
        *_exclusions(planned, conduct),
        *_stopping(planned["state"]["options"], state["options"], conduct),
    ]


def differences(planned: Any, actual: Any, path: str = "") -> Iterator[Deviation]:
    """Yield each value that differs, with its path.

    In paths, dots separate keys, and brackets contain list positions.
    """
    if planned == actual:
        return
    if isinstance(planned, Mapping) and isinstance(actual, Mapping):
        for key in sorted({*planned, *actual}):  # databases store keys in different orders
            yield from differences(planned.get(key), actual.get(key), f"{path}.{key}" if path else key)
    elif isinstance(planned, list) and isinstance(actual, list) and len(planned) == len(actual):
        for place, (before, after) in enumerate(zip(planned, actual, strict=True)):
            yield from differences(before, after, f"{path}[{place}]")
    else:
        yield Deviation(path, in_words(planned), in_words(actual))


def in_words(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        value = ", ".join(f"{key}: {in_words(inner) or 'none'}" for key, inner in sorted(value.items()))
    if isinstance(value, list):
        value = "; ".join(in_words(inner) or "none" for inner in value)
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _exclusions(planned: Mapping[str, Any], conduct: Mapping[str, Any]) -> Iterator[Deviation]:
    """Yield a deviation for each annotator who was excluded without being paused by a limit.

    Readers decide whether the exclusion followed the plan's rule.
    """
    crossings = [line for line in conduct["timeline"] if line["kind"] == "limit_crossed"]
    paused = {line["annotator"]: line["at"] for line in reversed(crossings)}  # the first pause of each annotator
    for exclusion in conduct["exclusions"]:
        code = exclusion["annotator"]
        if code in paused and paused[code] <= exclusion["at"]:
            continue
        undone = f", reinstated {exclusion['reinstated_at'][:10]}" if exclusion["reinstated_at"] else ""
        actual = f"excluded {exclusion['at'][:10]} manually, before a limit paused them: {exclusion['reason']}{undone}"
        yield Deviation(f"exclusions.{code}", in_words(planned["plan"]["exclusion_rules"]), in_words(actual))


STOPS = {
    "manual": "closed by a researcher",
    "complete": "closed when every statement has its judgments",
    "date": "closed at {closes_at}",
    "narrow": "closed at a half-width of {closes_at_half_width}",
}


def _stopping(planned: Mapping[str, Any], actual: Mapping[str, Any], conduct: Mapping[str, Any]) -> Iterator[Deviation]:
    """Yield a deviation if the report was created, or the round was closed, before the round's closing rule applied."""
    rule, closed_at = planned["closes_when"], conduct["dates"]["closed_at"]
    incomplete = conduct["statements"]["incomplete"]
    path, in_the_plan = "stopping_rule", STOPS[rule].format(**planned)
    if closed_at is None:
        yield Deviation(path, in_the_plan, f"report on a round that is not closed, {_left(incomplete)}")
    elif rule == "complete" and incomplete:
        yield Deviation(path, in_the_plan, f"closed {closed_at[:10]}, {_left(incomplete)}")
    elif rule == "date" and closed_at[:19] < planned["closes_at"][:19]:
        yield Deviation(path, in_the_plan, f"closed {closed_at[:16]}, before this time")
    elif rule == "narrow":
        closings = [line["by"] for line in conduct["timeline"] if line["kind"] == "closed"]
        if closings and (role := closings[-1]):  # the role None stands for the system
            yield Deviation(path, in_the_plan, f"closed {closed_at[:10]} by the {role}, not by the rule")


def _left(incomplete: int) -> str:
    return f"{counted(incomplete, 'statement')} incomplete" if incomplete else "every statement complete"


def hypothesis_outcome(hypothesis: Mapping[str, Any], comparisons: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a hypothesis with its outcome. comparison: number of the tested comparison in the report, from 1."""
    pair = sides_of_plan(hypothesis)
    numbered = enumerate(comparisons, start=1)
    number, compared = next(((n, entry) for n, entry in numbered if set(sides_of(entry)) == pair), (None, None))
    entry = {key: hypothesis[key] for key in ("words", *SIDES, "expects", "margin")}
    if compared is None:
        nothing = dict.fromkeys(("comparison", "difference", "low", "high", "p_holm", "smallest_margin"))
        return entry | nothing | {"outcome": UNDECIDED, "reason": NOT_COMPARED}
    difference, low, high = (compared[key] for key in ("difference", "low", "high"))
    if sides_of(compared)[0] != tuple(hypothesis["first"].values()):  # the sign of first minus second
        difference, low, high = (None if end is None else 0.0 - end for end in (difference, high, low))
    numbers = {"difference": difference, "low": low, "high": high, "p_holm": compared["p_holm"]}
    numbers["smallest_margin"] = (compared.get("equivalence") or {}).get("smallest_margin")
    return entry | {"comparison": number, **numbers, "outcome": _outcome(hypothesis, numbers), "reason": None}


def _outcome(hypothesis: Mapping[str, Any], numbers: Mapping[str, Any]) -> str:
    expects, low, high = Expects(hypothesis["expects"]), numbers["low"], numbers["high"]
    if expects == Expects.ALIKE:
        smallest, within = numbers["smallest_margin"], hypothesis["margin"] / 100  # the margin is in percentage points
        if smallest is not None and smallest < within:
            return SUPPORTED
        is_beyond = low is not None and high is not None and (low > within or high < -within)
        return NOT_SUPPORTED if is_beyond else UNDECIDED
    if numbers["p_holm"] is None or numbers["p_holm"] >= SIGNIFICANCE:
        return UNDECIDED
    is_first = numbers["difference"] > 0
    expected = {Expects.FIRST: is_first, Expects.SECOND: not is_first, Expects.DIFFERENT: True}
    return SUPPORTED if expected[expects] else NOT_SUPPORTED


def preregistration_table(document: Document) -> Table:
    registered = document.get("preregistration")
    rows = tuple(Row(row) for row in _facts(registered) if row[1]) if registered else ()
    notes = ("Times are in UTC. SHA-256: hash of the preregistration's JSON file, also in the audit log.",)
    return Table("preregistration", "Preregistration", (Column("item"), Column("value")), rows, notes)


def _facts(registered: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "frozen", registered["frozen_at"][:16].replace("T", " ")
    yield "first judgment", (registered["first_judgment_at"] or "none yet")[:16].replace("T", " ")
    yield "version", str(registered["version"])
    yield "SHA-256", registered["sha256"]
    yield "written by", registered["written_by"]
    for name in TEXTS:
        yield str(PlanSerializer().fields[name].label).lower(), registered["plan"][name]
    judges = [f"{run['name']} ({counted(run['n_answers'], 'answer')})" for run in registered["judges_before"]]
    yield "earlier LM judge runs", ", ".join(judges)
    yield "deviations", counted(len(registered["deviations"]), "deviation") if registered["deviations"] else "none"


def hypothesis_table(document: Document) -> Table:
    keys = ("difference", "low", "high", "p_holm", "smallest_margin", "reason")
    entries = (document.get("preregistration") or {}).get("hypotheses", [])
    columns = (
        Column("hypothesis"), Column("outcome"), Column("first, second"), Column("difference", Kind.POINTS),
        Column("low", Kind.POINTS), Column("high", Kind.POINTS), Column("p (Holm)", Kind.P),
        Column("equivalence bound", Kind.POINTS), Column("reason"),
    )  # fmt: skip
    notes = ("difference: first minus second; p adjusted over planned comparisons.",)
    rows = tuple(
        Row((whole_hypothesis(entry), entry["outcome"], sides, *(entry[key] for key in keys)))
        for entry in entries
        for sides in [", ".join(lm_and_setting(entry[side]) for side in SIDES)]
    )
    return Table("hypotheses", "Hypotheses", columns, rows, notes)


def deviation_table(document: Document) -> Table:
    entries = (document.get("preregistration") or {}).get("deviations", [])
    rows = tuple(Row((entry["path"], _short(entry["planned"]), _short(entry["actual"]))) for entry in entries)
    columns = (Column("item"), Column("planned"), Column("actual"))
    has_hash = any(_short(entry[side]) != entry[side] for entry in entries for side in ("planned", "actual"))
    notes = ("Hashes are shortened to 16 characters; the JSON file contains the full hashes.",) if has_hash else ()
    return Table("deviations", "Deviations from the preregistration", columns, rows, notes)


def _short(text: str | None) -> str | None:
    return f"{text[:16]}…" if text and SHA256.fullmatch(text) else text


def in_a_badge(day: str, n_deviations: int | None = None) -> str:
    """Return the text of the badge. n_deviations: None if there is no report."""
    if n_deviations is None:
        return f"Preregistered {day}"
    return f"Preregistered {day}, {counted(n_deviations, 'deviation') if n_deviations else 'no deviations'}"


class PreregistrationSection(ReportSection):
    """Section on the last preregistration of the round: deviations from it, and outcomes of its hypotheses.

    Facts from the database are `document`, the frozen document, and `state`, the state of the round when it is
    reported. Facts in a package are `document` and `deviations`.
    """

    key = "preregistration"
    title = "Preregistration"
    template = "publishing/preregistration/_report_section.html"
    method = METHOD
    tables = (preregistration_table, hypothesis_table, deviation_table)

    def gather(self, round: Round) -> Facts | None:
        frozen = round.preregistrations.order_by("-version").first()
        return frozen and {"document": frozen.document, "state": state_of(stored_parts(round))}

    def packed_facts(self, round: Round, entry: Mapping[str, Any]) -> Facts:
        frozen = round.preregistrations.get(version=entry["version"])
        return {"document": frozen.document, "deviations": entry["deviations"]}

    def prepared(self, evidence: Evidence, facts: Facts) -> Evidence:
        return replace(evidence, planned=frozenset(map(sides_of_plan, facts["document"]["plan"]["comparisons"])))

    def entry(self, document: Document, facts: Facts) -> dict[str, Any]:
        planned, entries = facts["document"], facts.get("deviations")
        if entries is None:
            entries = [entry._asdict() for entry in deviations(planned, facts["state"], document["conduct"])]
        return {
            "version": planned["version"],
            "sha256": sha256(canonical_json(planned)),
            "frozen_at": planned["frozen_at"],
            "first_judgment_at": document["conduct"]["dates"]["first_judgment_at"],
            "written_by": planned["written_by"],
            "plan": planned["plan"],
            "judges_before": planned["judges_before"],
            "hypotheses": [
                hypothesis_outcome(entry, document["comparisons"]) for entry in planned["plan"]["hypotheses"]
            ],
            "deviations": list(entries),
        }

    def headline(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        return {"n_deviations": len(entry["deviations"])}

    def badge(self, entry: Mapping[str, Any]) -> str:
        return in_a_badge(entry["frozen_at"][:10], len(entry["deviations"]))


SECTION = PreregistrationSection()
