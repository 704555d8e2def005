"""Options for requesting tuples from chat models. They are declared once for the command, form, API, and job."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from django import forms
from rest_framework import serializers

from kgharvest.errors import DomainError

MAX_MONEY = 10**6


class About(NamedTuple):
    """Description of an option. kind: type of the value. The value can also be None if the default is None."""

    label: str
    help: str
    kind: type = int
    least: int = 1
    most: int = 10**12


def _option(default: Any, *about: Any, **limits: Any) -> Any:
    return field(default=default, metadata={"about": About(*about, **limits)})


@dataclass(frozen=True)
class ChatOptions:
    """Options for requests to a chat model. Each field has an About. Raises BadChatOption for values out of range."""

    base_url: str = _option(
        "", "Endpoint URL", "URL without /chat/completions. Default: the endpoint of this installation.", str, most=500
    )
    scorer: str = _option(
        "",
        "Scoring LM",
        "LM that scores and ranks the tuples. Default: none; log-probabilities of the responses, if returned.",
        str,
        most=500,
    )
    tuples_per_request: int = _option(25, "Tuples per request", "Number of tuples per request.", most=500)
    patience: int = _option(
        2, "Patience", "Stop after this number of consecutive responses without new tuples.", most=20
    )
    max_requests: int = _option(100, "Maximum requests", "Maximum number of requests per relation.", most=10_000)
    temperature: float | None = _option(
        None, "Temperature", "Sampling temperature. Default: the endpoint's default.", float, least=0, most=2
    )
    max_completion_tokens: int = _option(
        4000, "Maximum completion tokens", "Maximum per response. Reasoning models need more tokens.", most=100_000
    )
    max_tokens_total: int | None = _option(
        None, "Maximum total tokens", "Maximum prompt and completion tokens per relation. Default: no limit."
    )
    budget: Decimal | None = _option(  # noqa: RUF009 - a dataclass field
        None, "Budget", "Budget per relation in the currency of the prices. Default: no limit.", Decimal, 0, MAX_MONEY
    )
    prompt_price: Decimal = _option(  # noqa: RUF009
        Decimal(0), "Price per million prompt tokens", "", Decimal, 0, MAX_MONEY
    )
    completion_price: Decimal = _option(  # noqa: RUF009
        Decimal(0), "Price per million completion tokens", "", Decimal, 0, MAX_MONEY
    )
    requests_per_minute: int | None = _option(
        None, "Requests per minute", "Maximum request rate. Default: no limit.", most=1_000_000
    )
    timeout_s: int = _option(120, "Response timeout (seconds)", "", most=3600)

    def __post_init__(self) -> None:
        for name, about, _ in declared():
            value = getattr(self, name)
            size = len(value) if isinstance(value, str) else value
            least = 0 if about.kind is str else about.least
            if size is not None and not least <= size <= about.most:
                unit = " characters" if about.kind is str else ""
                raise DomainError(
                    "BadChatOption", f"Invalid {name}: {value}. It must be from {least} to {about.most}{unit}."
                )


def declared() -> list[tuple[str, About, Any]]:
    """Return (name, About, default) of each option."""
    return [(option.name, option.metadata["about"], option.default) for option in fields(ChatOptions)]


def options_from(values: Mapping[str, Any]) -> ChatOptions:
    """Return the options in `values`. Options that are missing or None get their default."""
    names = {name for name, _, _ in declared()}
    return ChatOptions(**{name: value for name, value in values.items() if name in names and value is not None})


def to_json(options: ChatOptions) -> dict[str, Any]:
    """Return the options as JSON. Inverse of `from_json`. Amounts are strings so that they are not rounded."""
    values = {name: getattr(options, name) for name, _, _ in declared()}
    return {name: f"{value.normalize():f}" if isinstance(value, Decimal) else value for name, value in values.items()}


def from_json(document: Mapping[str, Any]) -> ChatOptions:
    amounts = {name for name, about, _ in declared() if about.kind is Decimal}
    return options_from(
        {name: Decimal(value) if name in amounts and value is not None else value for name, value in document.items()}
    )


PREFIX = "chat_"


def add_arguments(group: Any) -> None:
    """Add `--chat-base-url` and the other options to an argument group of a command."""
    for name, about, default in declared():
        if name == "scorer":
            group.add_argument("--scorer", dest=PREFIX + name, help=about.help)
            continue
        default_text = "" if default in (None, "", 0) else f" ({default})"
        help_text = f"{about.help.rstrip('.') or about.label.lower()}{default_text}"
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
    """Return the options in arguments or form fields whose names have the prefix. Raises BadChatOption."""
    return options_from({name.removeprefix(PREFIX): value for name, value in values.items() if name.startswith(PREFIX)})


FORM_FIELDS: dict[type, Callable[..., forms.Field]] = {
    int: forms.IntegerField,
    float: forms.FloatField,
    Decimal: forms.DecimalField,
}


def form_fields() -> dict[str, forms.Field]:
    """Return the form fields by prefixed name. Empty fields use the default."""
    by_name: dict[str, forms.Field] = {}
    for name, about, default in declared():
        shared = {"label": about.label, "help_text": about.help, "required": False}
        if about.kind is str:
            by_name[PREFIX + name] = forms.CharField(max_length=about.most, **shared)
            continue
        widget = forms.NumberInput(attrs={"placeholder": default if default is not None else ""})
        field_class = FORM_FIELDS[about.kind]
        by_name[PREFIX + name] = field_class(min_value=about.least, max_value=about.most, widget=widget, **shared)
    return by_name


API_FIELDS: dict[type, Callable[..., serializers.Field]] = {
    int: serializers.IntegerField,
    float: serializers.FloatField,
    Decimal: lambda **options: serializers.DecimalField(max_digits=12, decimal_places=4, **options),
}


def api_fields() -> dict[str, serializers.Field]:
    """Return the serializer fields by name."""
    by_name: dict[str, serializers.Field] = {}
    for name, about, default in declared():
        shared = {"required": False, "help_text": " ".join(filter(None, [f"{about.label}.", about.help]))}
        if about.kind is str:
            by_name[name] = serializers.CharField(max_length=about.most, allow_blank=True, **shared)
            continue
        limits = {"min_value": about.least, "max_value": about.most, "allow_null": default is None}
        by_name[name] = API_FIELDS[about.kind](**limits, **shared)
    return by_name
