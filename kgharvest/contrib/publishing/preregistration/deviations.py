"""Deviations of a round from its preregistration, computed from documents without a database."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kgharvest.pages.number_format import counted

# Hashes of texts that are also included as values: one change is one deviation.
HASH_OF = {"instructions.round_sha256": "options.instructions", "instructions.consent_sha256": "options.consent"}
# Earlier wordings of the same method: a preregistration that froze one of them does not deviate.
METHOD_PATH = "analysis.method_sha256"
EARLIER_WORDINGS = {"c8460897190de13af2fd250555f7507ead324dda5b8fd274a3e98dca8dcff2e4"}
LONGEST = 300  # maximum characters of a displayed value


class Deviation(NamedTuple):
    """path: of the value, for example options.closes_when. planned, actual: as text, None if absent."""

    path: str
    planned: str | None
    actual: str | None


def deviations(planned: Mapping[str, Any], state: Mapping[str, Any], conduct: Mapping[str, Any]) -> list[Deviation]:
    """Return all deviations. planned: frozen document. state: of the round at the report. conduct: of the report."""
    changed_values = [
        deviation
        for deviation in differences(planned["state"], state)
        if deviation.path != METHOD_PATH or deviation.planned not in EARLIER_WORDINGS
    ]
    paths = {deviation.path for deviation in changed_values}
    return [
        *(deviation for deviation in changed_values if HASH_OF.get(deviation.path) not in paths),
        *_exclusions(planned, conduct),
        *_stopping(planned["state"]["options"], state["options"], conduct),
    ]


def differences(planned: Any, actual: Any, path: str = "") -> Iterator[Deviation]:
    """Yield each different value with its path: keys separated by dots, list positions in brackets."""
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
    """Yield exclusions of annotators whom no limit had paused. Readers decide if the exclusion rule covers them."""
    crossings = [line for line in conduct["timeline"] if line["kind"] == "limit_crossed"]
    paused = {line["annotator"]: line["at"] for line in reversed(crossings)}  # first time
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
    """Yield a deviation if the report was created, or the round closed, before its closing rule applied."""
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
        if closings and (role := closings[-1]):  # None: the system
            yield Deviation(path, in_the_plan, f"closed {closed_at[:10]} by the {role}, not by the rule")


def _left(incomplete: int) -> str:
    return f"{counted(incomplete, 'statement')} incomplete" if incomplete else "every statement complete"
