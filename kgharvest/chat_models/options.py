"""How chat models are asked for tuples: each option once, for the command, the form, the API and the job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from django import forms
from rest_framework import serializers

from kgharvest.errors import DomainError

MOST_MONEY = 10**6
LONGEST_URL = 500


class About(NamedTuple):
    """label, help: for people. kind: of the value; None is allowed where it is the default."""

    label: str
    help: str
    kind: type = int
    least: int = 1
    most: int = 10**12


def _about(*args: Any, **fields: Any) -> dict[str, About]:
    return {"about": About(*args, **fields)}


@dataclass(frozen=True)
class ChatOptions:
    """Every field has an About. Raises BadChatOption for a value out of range."""

    base_url: str = field(
        default="",
        metadata=_about(
            "Address of the endpoint",
            "Up to and without /chat/completions. Empty is that of this installation.",
            str,
            most=LONGEST_URL,
        ),
    )
    scorer: str = field(
        default="",
        metadata=_about(
            "LM that scores",
            "An LM, as harvests name it, that scores and ranks the tuples as its own. Empty: they rank as they came.",
            str,
            most=500,
        ),
    )
    tuples_per_request: int = field(
        default=25, metadata=_about("Tuples for each request", "How many it is asked for at a time.", most=500)
    )
    patience: int = field(
        default=2,
        metadata=_about("Patience", "It is asked no more after so many answers in a row without a new tuple.", most=20),
    )
    max_requests: int = field(default=100, metadata=_about("Requests", "At most, for each relation.", most=10_000))
    temperature: float | None = field(
        default=None,
        metadata=_about("Temperature", "Empty is what the endpoint takes for its usual one.", float, least=0, most=2),
    )
    max_completion_tokens: int = field(
        default=4000,
        metadata=_about("Tokens of an answer", "At most; models that think aloud need more.", most=100_000),
    )
    max_tokens_total: int | None = field(
        default=None,
        metadata=_about("Tokens in all", "Of questions and answers, for each relation. Empty is no limit."),
    )
    budget: Decimal | None = field(
        default=None,
        metadata=_about(
            "Budget", "For each relation, in the currency of the prices. Empty is no limit.", Decimal, 0, MOST_MONEY
        ),
    )
    prompt_price: Decimal = field(
        default=Decimal(0), metadata=_about("Price of a million prompt tokens", "", Decimal, least=0, most=MOST_MONEY)
    )
    completion_price: Decimal = field(
        default=Decimal(0), metadata=_about("Price of a million answer tokens", "", Decimal, least=0, most=MOST_MONEY)
    )
    requests_per_minute: int | None = field(
        default=None, metadata=_about("Requests a minute", "Empty is as fast as the endpoint answers.", most=1_000_000)
    )
    timeout_s: int = field(default=120, metadata=_about("Seconds for an answer", "", most=3600))

    def __post_init__(self) -> None:
        for name, about, _ in declared():
            value = getattr(self, name)
            size = len(value) if isinstance(value, str) else value
            least = 0 if about.kind is str else about.least
            if size is not None and not least <= size <= about.most:
                unit = " characters" if about.kind is str else ""
                raise DomainError(
                    "BadChatOption", f"{name} is {value}; it has to be from {least} to {about.most}{unit}."
                )


def declared() -> list[tuple[str, About, Any]]:
    """Return name, About and default of each option."""
    return [(option.name, option.metadata["about"], option.default) for option in fields(ChatOptions)]


def options_from(values: Mapping[str, Any]) -> ChatOptions:
    """Return the options named in `values`; those that are None or missing have their defaults."""
    names = {name for name, _, _ in declared()}
    return ChatOptions(**{name: value for name, value in values.items() if name in names and value is not None})


# -- in a job's payload ------------------------------------------------------------------------------------------------


def to_json(options: ChatOptions) -> dict[str, Any]:
    """The inverse of `from_json`. Amounts are texts, so that none is rounded."""
    values = {name: getattr(options, name) for name, _, _ in declared()}
    return {name: f"{value.normalize():f}" if isinstance(value, Decimal) else value for name, value in values.items()}


def from_json(document: Mapping[str, Any]) -> ChatOptions:
    amounts = {name for name, about, _ in declared() if about.kind is Decimal}
    return options_from(
        {name: Decimal(value) if name in amounts and value is not None else value for name, value in document.items()}
    )


# -- at the doors ------------------------------------------------------------------------------------------------------

PREFIX = "chat_"


def add_arguments(group: Any) -> None:
    """Add `--chat-base-url`, ... to a group of a command's arguments."""
    for name, about, default in declared():
        if name == "scorer":
            group.add_argument("--scorer", dest=PREFIX + name, help=about.help)
            continue
        usual = "" if default in (None, "", 0) else f" ({default})"
        help_text = f"{about.label.lower()}{usual}" if not about.help else f"{about.help.rstrip('.')}{usual}"
        flag = f"--{PREFIX}{name}".replace("_", "-")
        group.add_argument(flag, type=_amount if about.kind is Decimal else about.kind, help=help_text)


def _amount(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise ValueError(text) from None
    if not amount.is_finite():
        raise ValueError(text)
    return amount


def from_arguments(values: Mapping[str, Any]) -> ChatOptions:
    """Return what arguments or fields with the prefix say. Raises BadChatOption."""
    return options_from({name.removeprefix(PREFIX): value for name, value in values.items() if name.startswith(PREFIX)})


FORM_FIELDS: dict[type, Callable[..., forms.Field]] = {
    int: forms.IntegerField,
    float: forms.FloatField,
    Decimal: forms.DecimalField,
}


def form_fields() -> dict[str, forms.Field]:
    """Return a form's fields, by name with the prefix; what is left empty has its default."""
    made: dict[str, forms.Field] = {}
    for name, about, default in declared():
        shared = {"label": about.label, "help_text": about.help, "required": False}
        if about.kind is str:
            made[PREFIX + name] = forms.CharField(max_length=about.most, **shared)
            continue
        widget = forms.NumberInput(attrs={"placeholder": default if default is not None else ""})
        made[PREFIX + name] = FORM_FIELDS[about.kind](
            min_value=about.least, max_value=about.most, widget=widget, **shared
        )
    return made


API_FIELDS: dict[type, Callable[..., serializers.Field]] = {
    int: serializers.IntegerField,
    float: serializers.FloatField,
    Decimal: lambda **options: serializers.DecimalField(max_digits=12, decimal_places=4, **options),
}


def api_fields() -> dict[str, serializers.Field]:
    """Return a serializer's fields, by name."""
    made: dict[str, serializers.Field] = {}
    for name, about, default in declared():
        shared = {"required": False, "help_text": " ".join(filter(None, [f"{about.label}.", about.help]))}
        if about.kind is str:
            made[name] = serializers.CharField(max_length=about.most, allow_blank=True, **shared)
            continue
        made[name] = API_FIELDS[about.kind](
            min_value=about.least, max_value=about.most, allow_null=default is None, **shared
        )
    return made
