"""Prolific studies: the document that creates a study from a panel, and validation of the panel.

Options specific to Prolific are in `panel.platform_options`, by the names in STUDY_OPTIONS.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from django.conf import settings
from django.urls import reverse

from kgharvest.contrib.recruiting.models import Panel, Platform
from kgharvest.contrib.recruiting.panels.identifiers import digest
from kgharvest.contrib.recruiting.panels.links import with_parameters
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.contrib.recruiting.panels.presets import PRESETS
from kgharvest.contrib.recruiting.platforms import PlatformRefused

CURRENCIES = {"USD": 800, "GBP": 600}  # Prolific's minimum hourly rates in minor units
DEVICES = {"desktop": "computers", "tablet": "tablets", "mobile": "phones"}
CONTENT_WARNINGS = {"": "none", "sensitive": "sensitive content", "explicit": "explicit content"}
LONGEST_ALLOWED = 24 * 60 - 1  # minutes
MOST_SLOTS = 100_000


Rule = tuple[Callable[[Any], bool], str]  # predicate and description of valid values


def _text(most: int) -> Rule:
    return (
        lambda value: isinstance(value, str) and len(value) <= most and "\0" not in value,
        f"a text of at most {most:,} characters",
    )


def _number(most: int) -> Rule:
    return (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most,
        f"a whole number from 1 to {most:,}",
    )


STUDY_OPTIONS: dict[str, Rule] = {
    "title": _text(120),
    "description": _text(6000),
    "devices": (
        lambda value: isinstance(value, list) and all(device in list(DEVICES) for device in value),
        f"a list of {', '.join(DEVICES)}",
    ),
    "content_warning": (lambda value: value in list(CONTENT_WARNINGS), "sensitive, explicit, or empty"),
    "content_warning_details": _text(500),
    "filters": (lambda value: not any(filter_problems(value)), "a list of filters"),
    "maximum_minutes": _number(LONGEST_ALLOWED),
    "screen_out_slots": _number(MOST_SLOTS),
    "project": _text(50),
    "signs_entry": (lambda value: isinstance(value, bool), "true or false"),
}


def option_problems(panel: Panel) -> Iterator[str]:
    """Yield one sentence per problem in the panel's platform_options."""
    for name, value in panel.platform_options.items():
        if name not in STUDY_OPTIONS:
            yield f"Unknown Prolific option {name!r:.50}. Use {', '.join(STUDY_OPTIONS)}."
            continue
        is_valid, description = STUDY_OPTIONS[name]
        if not is_valid(value):
            yield next(filter_problems(value)) if name == "filters" else f"{name} must be {description}."


def filter_problems(filters: Any) -> Iterator[str]:
    """Yield one sentence per problem: a filter has either selected_values or a selected_range."""
    if not isinstance(filters, list):
        yield "The filters must be a list."
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
                f"Filter {number} ({filter_['filter_id']:.40}) needs either selected_values (a list of texts) or "
                "selected_range (lower, upper, or both, as numbers)."
            )


class Code(NamedTuple):
    """Completion code. actions: Prolific's actions for it. kind, consequence: descriptions for researchers."""

    code: str
    code_type: str
    actions: list[dict[str, Any]]
    kind: str
    consequence: str


def study_document(panel: Panel) -> dict[str, Any]:
    """Return the body of POST /studies/. Raises PlatformRefused if the panel is not ready."""
    check_ready(panel)
    options = panel.platform_options
    address = settings.ORIGIN + reverse("recruiting:panel_enter", args=[panel.token])
    document = {
        "name": options["title"],
        "internal_name": internal_name(panel),
        "description": options["description"],
        "external_study_url": with_parameters(address, panel, PRESETS[Platform.PROLIFIC].values),
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
    """Return a unique name, which finds a draft whose creation was not confirmed."""
    return f"{panel.name} {digest(f'study:{panel.token}')[:16]}"


def codes(panel: Panel) -> Iterator[Code]:
    """Yield the completion codes of the panel. Completed submissions are reviewed manually."""
    review = "awaits your review, automatic approval after 21 days"
    yield Code(panel.completion_code, "COMPLETED", [{"action": "MANUALLY_REVIEW"}], "all statements judged", review)
    if panel.screen_out_code and panel.screen_out_reward:
        payment = {
            "action": "FIXED_SCREEN_OUT_PAYMENT",
            "fixed_screen_out_reward": panel.screen_out_reward,
            "slots": screen_out_slots(panel),
        }
        pays = f"pays {money(panel.screen_out_reward, panel.currency)} and releases the place"
        yield Code(panel.screen_out_code, "FIXED_SCREENOUT", [payment], "screen-out", pays)
    elif panel.screen_out_code:
        yield _return_code(panel.screen_out_code, "You did not pass the comprehension check.", "screen-out")
    if panel.quota_full_code:
        yield _return_code(panel.quota_full_code, "All places of the study were taken.", "quota full")


def _return_code(code: str, reason: str, kind: str) -> Code:
    actions = [{"action": "REQUEST_RETURN", "return_reason": reason}]
    return Code(code, "OTHER", actions, kind, "asks the participant to return the place")


def screen_out_slots(panel: Panel) -> int:
    """Return the maximum number of paid screen-outs, after which Prolific pauses the study."""
    return panel.platform_options.get("screen_out_slots") or panel.places


def least_allowed_minutes(estimated_minutes: int) -> int:
    """Return Prolific's minimum time limit for an estimate e: 2 + 2 e + 2 sqrt(e) minutes."""
    return min(math.ceil(2 + 2 * estimated_minutes + 2 * math.sqrt(estimated_minutes)), LONGEST_ALLOWED)


def too_few_minutes(least: int) -> str:
    return f"Prolific requires at least {least} minutes for this study. Increase the maximum allowed time."


def check_ready(panel: Panel) -> None:
    """Raise PlatformRefused with the first problem that prevents publication on Prolific."""
    for problem in publication_problems(panel):
        raise PlatformRefused(problem)


def publication_problems(panel: Panel) -> Iterator[str]:
    options = panel.platform_options
    if not options.get("title") or not options.get("description"):
        yield "Enter a title and a description of the study for participants."
    if panel.currency not in CURRENCIES:
        yield f"Prolific pays in {' or '.join(CURRENCIES)}, not in {panel.currency}. Change the panel's currency."
    elif panel.hourly_reward < CURRENCIES[panel.currency]:
        yield (
            f"The reward is {panel.hourly_reward / 100:.2f} {panel.currency} per hour. Prolific requires at least "
            f"{CURRENCIES[panel.currency] / 100:.2f}. Increase the reward."
        )
    if panel.screen_out_reward >= max(panel.reward, 1):
        yield "The screen-out reward must be lower than the reward on Prolific. Reduce the screen-out reward."
    panel_codes = [code.code for code in codes(panel)]
    if not panel.completion_code or len(set(panel_codes)) < len(panel_codes):
        yield "Prolific requires a completion code, and all codes must differ. Change the panel's codes."
    if not (panel.study_parameter and panel.session_parameter):
        yield "Link parameter missing: Prolific sends study and session. Enter names for both in the panel."
    least = least_allowed_minutes(panel.estimated_minutes)
    if options.get("maximum_minutes") and options["maximum_minutes"] < least:
        yield too_few_minutes(least)
