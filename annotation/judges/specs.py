"""JSON spec of a judge run, for `judge_tuples` and the API. The keys of the spec are fields of JudgeRun."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import models
from rest_framework import serializers

from annotation.judges.models import JudgeKind, JudgeRun
from annotation.judges.prompts import DEFAULT_PROMPT, check_template
from annotation.rounds.serializers import ModelDescription, OfType, Text, default_of, first_fault, key_lines
from kgharvest.bulk.file_reading import read_json, read_text
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.errors import DomainError, ImportRefused


class Amount(OfType, serializers.DecimalField):
    json_types = (int, float)
    expected = "a number from {field.min_value} to {field.max_value} with at most {field.decimal_places} decimals"

    def __init__(self, **kwargs: Any):
        super().__init__(**{**kwargs, "coerce_to_string": False})

    def to_internal_value(self, value: Any) -> Decimal:
        amount: Decimal = super().to_internal_value(value)
        return amount


class JudgeSpecSerializer(ModelDescription):
    serializer_field_mapping = {**ModelDescription.serializer_field_mapping, models.DecimalField: Amount}

    kind = serializers.ChoiceField(JudgeKind.choices, source="judge_kind", help_text="Source of the answers.")
    path = Text(
        max_length=1000, allow_blank=True, default="", help_text="Answer file. Only for kind file in judge_tuples."
    )

    class Meta:
        model = JudgeRun
        fields = ("name", "kind", *JudgeRun.OPTIONS[1:], "path")
        extra_kwargs = {"model": {"required": False, "default": "", "allow_blank": True}}


def read_judge_spec(path: Path) -> Any:
    """Return the parsed JSON file. Raises NoSuchFile, or BadJudgeSpec with line and column."""
    try:
        return read_json(read_text(path), path.name)
    except ImportRefused as refused:
        fault = refused.entries[0]
        raise DomainError("BadJudgeSpec", f"{path.name}, {fault.where}: the description {fault.reason}.") from refused


def run_from_spec(document: Any) -> tuple[JudgeRun, str]:
    """Return an unsaved run without a round, and the `path` of the spec. An empty prompt becomes the default prompt.

    Raises BadPromptTemplate, or BadJudgeSpec with the first invalid key and its valid values.
    """
    serializer = JudgeSpecSerializer(data=document)
    if not serializer.is_valid():
        message = first_fault(serializer, document, serializer.errors, "")
        raise DomainError("BadJudgeSpec", message.replace("see open_round --help", "see judge_tuples --help"))
    values = dict(serializer.validated_data)
    path = values.pop("path")
    run = JudgeRun(kind=JudgeRun.KIND, **values)
    for is_wrong, message in RULES:
        if is_wrong(run):
            raise DomainError("BadJudgeSpec", message.format(run=run))
    if run.judge_kind in (JudgeKind.CHAT, JudgeKind.CAUSAL):
        run.prompt = run.prompt or DEFAULT_PROMPT
        check_template(run.prompt)
        if run.n_examples and "{examples}" not in run.prompt:
            raise DomainError("BadJudgeSpec", f"n_examples is {run.n_examples}, but the prompt has no {{examples}}.")
    elif run.judge_kind == JudgeKind.SCORE and run.prompt:
        PromptTemplate.parse(run.prompt)
    return run, path


RULES: list[tuple[Callable[[JudgeRun], bool], str]] = [
    (lambda run: run.name == "new", "name is 'new', which is reserved. Choose another name."),
    (lambda run: run.judge_kind != JudgeKind.FILE and not run.model, "model is empty. Name an LM."),
    (
        lambda run: run.judge_kind == JudgeKind.CHAT and not (run.base_url or settings.JUDGE_BASE_URL),
        "base_url is empty and KGHARVEST_JUDGE_BASE_URL is not set. Give the endpoint's URL.",
    ),
    (
        lambda run: run.judge_kind != JudgeKind.CHAT and bool(run.base_url),
        "base_url is only for kind chat. Omit it for kind {run.judge_kind}.",
    ),
    (
        lambda run: run.judge_kind == JudgeKind.SCORE and run.threshold is None,
        "threshold is missing. Set it for kind score, in nats, for example -8.5.",
    ),
    (
        lambda run: run.judge_kind != JudgeKind.SCORE and run.threshold is not None,
        "threshold is only for kind score. Omit it for kind {run.judge_kind}.",
    ),
    (
        lambda run: run.judge_kind in (JudgeKind.CAUSAL, JudgeKind.SCORE) and run.repeats > 1,
        "repeats is {run.repeats}, but kind {run.judge_kind} is deterministic. Set repeats to 1.",
    ),
    (
        lambda run: run.budget is not None and not (run.prompt_price or run.completion_price),
        "budget requires prompt_price or completion_price, per million tokens; without them, the cost is 0.",
    ),
]


def spec_of(run: JudgeRun) -> Mapping[str, Any]:
    """Return the spec of a run, without default values. A new run that is created from it has the same judge."""
    default_run = JudgeRun()
    document = {"name": run.name, "kind": run.judge_kind}
    for name in JudgeRun.OPTIONS[1:]:
        value = getattr(run, name)
        if value != getattr(default_run, name):
            document[name] = float(value) if isinstance(value, Decimal) else value
    return document


def example() -> str:
    """Return a commented spec with every key, its default, and its valid values."""
    shown = {"name": "llama-1", "kind": JudgeKind.CHAT.value, "model": "llama-3.3-70b"}
    fields = JudgeSpecSerializer().fields.items()
    lines = [line for name, field in fields for line in key_lines(name, shown.get(name, default_of(field)), field)]
    return "\n".join(["{", *lines, "}"])
