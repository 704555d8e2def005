"""Text for parts of a report's document: names of LMs and settings, dates, and query strings of pages."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from kgharvest.names import short_name
from kgharvest.pages.number_format import count, counted, interval, share

Document = Mapping[str, Any]

ORIGINS = {"simulated": "simulated, not people", "imported": "imported judgments"}  # labels by source of the round


def name_of(model_or_setting: str | None) -> str:
    return "not named" if model_or_setting is None else model_or_setting


def demonstrator_mark(document: Document, model: str | None) -> str:
    """Return the name of an LM as shown in tables, with an asterisk if it is a demonstrator."""
    return name_of(model) + ("*" if model in document.get("demonstrators", []) else "")


def lm_and_setting(part: Mapping[str, Any]) -> str:
    return f"{name_of(part['model'])} · {name_of(part['setting'])}"


def short_model(model: str | None) -> str:
    """Return the last part of a folder or hub id."""
    return short_name(name_of(model))


def side_name(side: Mapping[str, Any]) -> str:
    """Return the name of an LM and setting for figures."""
    return f"{short_model(side['model'])} · {name_of(side['setting'])}"


def side_numbers(document: Document) -> dict[tuple[str | None, str | None], int]:
    """Return the position of each LM and setting in the totals. Positions determine colors."""
    return {(total["model"], total["setting"]): number for number, total in enumerate(document["totals"])}


def about_side(part: Mapping[str, Any]) -> dict[str, str | None]:
    """Return LM and setting for `Row.about`."""
    return {"model": part.get("model"), "setting": part.get("setting")}


def made_at(document: Document) -> str:
    """Return the creation time of the report as text: "3 November 2026, 01:23 UTC"."""
    moment = datetime.fromisoformat(document["created_at"]).astimezone(UTC)
    return f"{moment:%d %B %Y, %H:%M} UTC".lstrip("0")


def tuples_query(about: Mapping[str, Any], **part: Any) -> str:
    """Return the query string of the tuples page for a relation, LM, and setting. part: further filters."""
    keys = {key: about.get(key) for key in ("relation", "model", "setting")} | part
    return urlencode({key: value for key, value in keys.items() if value is not None})


def key_numbers(document: Document) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the value, and the basis (sample size or interval) of each key number."""
    yield "Statements complete", f"{count(document['n_complete'])} of {count(document['n_tasks'])}", ""
    k = document["n_judgments"] / (document["n_tasks"] or 1)
    annotators = counted(len(document["annotators"]), "annotator")
    yield "Judgments", count(document["n_judgments"]), f"by {annotators}, k = {k:.3g} per statement"
    alpha = document["alpha"]
    basis = f"{interval(alpha['low'], alpha['high'])}, {counted(alpha['n_units'], 'statement')}".lstrip(", ")
    yield "Krippendorff's alpha", share(alpha["value"]), alpha["reason"] or basis
    yield "Percent agreement", share(document["percent_agreement"]), ""
