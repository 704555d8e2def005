"""What a study at Prolific is, made of a panel: the document that creates it, and what must hold of the panel.

What only Prolific takes is in `panel.platform_options`, under the names of STUDY_OPTIONS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.conf import settings
from django.urls import reverse

from kgharvest.contrib.recruiting.models import Panel
from kgharvest.contrib.recruiting.panels.identifiers import digest
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.contrib.recruiting.platforms import PlatformRefused

CURRENCIES = {"USD": 800, "GBP": 600}  # and the least that Prolific lets an hour pay, in minor units
DEVICES = {"desktop": "computers", "tablet": "tablets", "mobile": "phones"}
CONTENT_WARNINGS = {"": "none", "sensitive": "sensitive content", "explicit": "explicit content"}
LONGEST_ALLOWED = 24 * 60 - 1  # minutes
MOST_SLOTS = 100_000


def _is_text(most: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and len(value) <= most and "\0" not in value


def _is_number(most: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


# What platform_options may have: what each must be, and that in words.
STUDY_OPTIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "title": (_is_text(120), "a text of at most 120 characters"),
    "description": (_is_text(6000), "a text of at most 6,000 characters"),
    "devices": (
        lambda value: isinstance(value, list) and all(device in list(DEVICES) for device in value),
        f"a list of {', '.join(DEVICES)}",
    ),
    "content_warning": (lambda value: value in list(CONTENT_WARNINGS), "sensitive, explicit or empty"),
    "content_warning_details": (_is_text(500), "a text of at most 500 characters"),
    "filters": (lambda value: not any(filter_problems(value)), "a list of filters"),
    "maximum_minutes": (_is_number(LONGEST_ALLOWED), f"a number of minutes up to {LONGEST_ALLOWED}"),
    "screen_out_slots": (_is_number(MOST_SLOTS), f"a number up to {MOST_SLOTS}"),
    "project": (_is_text(50), "a text of at most 50 characters"),
    "signs_entry": (lambda value: isinstance(value, bool), "true or false"),
}


def option_problems(panel: Panel) -> Iterator[str]:
    """Yield what is wrong with the panel's platform_options, in a sentence each."""
    for name, value in panel.platform_options.items():
        if name not in STUDY_OPTIONS:
            yield f"{name!r:.50} is no option of a study at Prolific; there are {', '.join(STUDY_OPTIONS)}."
            continue
        is_right, in_words = STUDY_OPTIONS[name]
        if not is_right(value):
            yield next(filter_problems(value)) if name == "filters" else f"{name} is not {in_words}."


def filter_problems(filters: Any) -> Iterator[str]:
    """Yield what is wrong with a study's filters: each is of selected_values or of a selected_range."""
    if not isinstance(filters, list):
        yield "The filters are no list."
        return
    for number, filter_ in enumerate(filters, start=1):
        if not isinstance(filter_, dict) or not isinstance(filter_.get("filter_id"), str):
            yield f"Filter {number} has no filter_id."
            continue
        values, bounds = filter_.get("selected_values"), filter_.get("selected_range")
        is_choice = isinstance(values, list) and values and all(isinstance(value, str) for value in values)
        is_range = (
            isinstance(bounds, dict)
            and bounds
            and all(name in ("lower", "upper") and type(bound) in (int, float) for name, bound in bounds.items())
        )
        if bool(is_choice) == bool(is_range) or len(filter_) != 2:
            yield (
                f"Filter {number} ({filter_['filter_id']:.40}) needs either selected_values, a list of texts, or "
                "selected_range with lower, upper or both, as numbers."
            )


class Code(NamedTuple):
    """A code that ends a submission. actions: what Prolific does then. kind, what_follows: for people."""

    code: str
    code_type: str
    actions: list[dict[str, Any]]
    kind: str
    what_follows: str


def study_document(panel: Panel) -> dict[str, Any]:
    """Return what POST /studies/ takes. Raises PlatformRefused where the panel is not ready for it."""
    check_ready(panel)
    options = panel.platform_options
    document = {
        "name": options["title"],
        "internal_name": internal_name(panel),
        "description": options["description"],
        "external_study_url": entry_url(panel),
        "prolific_id_option": "url_parameters",
        "completion_codes": [
            {"code": code.code, "code_type": code.code_type, "actions": code.actions, "actor": "participant"}
            for code in codes(panel)
        ],
        "total_available_places": panel.places,
        "estimated_completion_time": panel.estimated_minutes,
        "maximum_allowed_time": options.get("maximum_minutes") or least_allowed_minutes(panel.estimated_minutes),
        "reward": panel.reward,
        "device_compatibility": options.get("devices") or list(DEVICES),
        "filters": options.get("filters") or [],
        "study_labels": ["annotation"],
    }
    if options.get("content_warning"):
        document["content_warnings"] = [options["content_warning"]]
        document["content_warning_details"] = options.get("content_warning_details", "")
    if options.get("project"):
        document["project"] = options["project"]
    if options.get("signs_entry"):
        document["is_external_study_url_secure"] = True
    return document


def internal_name(panel: Panel) -> str:
    """Return the name by which a draft that was made without our hearing of it is found again."""
    return f"{panel.name} {digest(f'study:{panel.token}')[:16]}"


def entry_url(panel: Panel) -> str:
    """Return the panel's entry link with what Prolific fills in: who, in which study, in which submission."""
    names = {
        panel.participant_parameter: "{{%PROLIFIC_PID%}}",
        panel.study_parameter: "{{%STUDY_ID%}}",
        panel.session_parameter: "{{%SESSION_ID%}}",
    }
    path = reverse("recruiting:panel_enter", args=[panel.token])
    return f"{settings.ORIGIN}{path}?{urlencode(names, safe='{}%')}"


def codes(panel: Panel) -> Iterator[Code]:
    """Yield the codes of the panel. Nobody is approved before somebody has looked."""
    waits = "waits for your review, and approves by itself after 21 days"
    yield Code(panel.completion_code, "COMPLETED", [{"action": "MANUALLY_REVIEW"}], "all statements judged", waits)
    if panel.screen_out_code and panel.screen_out_reward:
        payment = {
            "action": "FIXED_SCREEN_OUT_PAYMENT",
            "fixed_screen_out_reward": panel.screen_out_reward,
            "slots": screen_out_slots(panel),
        }
        pays = f"pays {money(panel.screen_out_reward, panel.currency)} and gives the place to somebody else"
        yield Code(panel.screen_out_code, "FIXED_SCREENOUT", [payment], "turned away by the check", pays)
    elif panel.screen_out_code:
        reason = "The check at the beginning was not passed."
        yield _return_code(panel.screen_out_code, reason, "turned away by the check")
    if panel.quota_full_code:
        yield _return_code(panel.quota_full_code, "All places of the study were taken.", "no place left")


def _return_code(code: str, reason: str, kind: str) -> Code:
    actions = [{"action": "REQUEST_RETURN", "return_reason": reason}]
    return Code(code, "OTHER", actions, kind, "asks the person to return the place")


def screen_out_slots(panel: Panel) -> int:
    """Return how many people may be paid for being turned away before Prolific pauses the study."""
    return panel.platform_options.get("screen_out_slots") or panel.places


def least_allowed_minutes(estimated_minutes: int) -> int:
    """Return the shortest time limit that Prolific takes for an estimate: 2 + 2 e + 2 sqrt(e) minutes."""
    return min(math.ceil(2 + 2 * estimated_minutes + 2 * math.sqrt(estimated_minutes)), LONGEST_ALLOWED)


def check_ready(panel: Panel) -> None:
    """Raise PlatformRefused, saying what is missing or what Prolific does not take."""
    for reason in what_is_missing(panel):
        raise PlatformRefused(reason)


def what_is_missing(panel: Panel) -> Iterator[str]:
    options = panel.platform_options
    if not options.get("title") or not options.get("description"):
        yield "Give the study a title and a description for participants."
    if panel.currency not in CURRENCIES:
        yield f"Prolific pays in {' or '.join(CURRENCIES)}, not in {panel.currency}; change the panel's currency."
    elif hourly_pay(panel) < CURRENCIES[panel.currency]:
        yield (
            f"The reward comes to {hourly_pay(panel) / 100:.2f} {panel.currency} an hour; Prolific asks for "
            f"{CURRENCIES[panel.currency] / 100:.2f} or more."
        )
    if panel.screen_out_reward >= max(panel.reward, 1):
        yield "Prolific pays whom a check turns away less than the reward; lower the reward of these."
    given = [code.code for code in codes(panel)]
    if not panel.completion_code or len(set(given)) < len(given):
        yield "Prolific needs a completion code, and a different code for each way to end; change the panel's codes."
    if not (panel.study_parameter and panel.session_parameter):
        yield "Name the parameters of study and session in the panel's entry link: Prolific sends both."
    if options.get("maximum_minutes") and options["maximum_minutes"] < least_allowed_minutes(panel.estimated_minutes):
        yield f"Prolific lets people have {least_allowed_minutes(panel.estimated_minutes)} minutes or more for this."


def hourly_pay(panel: Panel) -> int:
    """Return what an hour pays by the estimated time, in minor units."""
    return panel.reward * 60 // panel.estimated_minutes
