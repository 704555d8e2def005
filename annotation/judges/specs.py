"""The JSON description of a judge: what `judge_tuples` reads and the API takes. Its keys are fields of JudgeRun."""

from __future__ import annotations

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

    kind = serializers.ChoiceField(JudgeKind.choices, source="judge_kind", help_text="Where the answers come from.")
    path = Text(
        max_length=1000,
        allow_blank=True,
        default="",
        help_text="Of the file with the answers of a judge of the kind file; of judge_tuples only.",
    )

    class Meta:
        model = JudgeRun
        fields = ("name", "kind", *JudgeRun.OPTIONS[1:], "path")
        extra_kwargs = {"model": {"required": False, "default": "", "allow_blank": True}}


def read_judge_spec(path: Path) -> Any:
    """Return the JSON of a file. Raises NoSuchFile, or BadJudgeSpec with line and column."""
    try:
        return read_json(read_text(path), path.name)
    except ImportRefused as refused:
        fault = refused.entries[0]
        raise DomainError("BadJudgeSpec", f"{path.name}, {fault.where}: the description {fault.reason}.") from refused


def run_from_spec(document: Any) -> tuple[JudgeRun, str]:
    """Return the unsaved run that a description asks for, without its round, and the path that it names.

    Raises BadJudgeSpec, which names the first wrong key and says what to give, or BadPromptTemplate.
    """
    serializer = JudgeSpecSerializer(data=document)
    if not serializer.is_valid():
        sentence = first_fault(serializer, document, serializer.errors, "")
        raise DomainError("BadJudgeSpec", sentence.replace("see open_round --help", "see judge_tuples --help"))
    values = dict(serializer.validated_data)
    path = values.pop("path")
    run = JudgeRun(kind=JudgeRun.KIND, **values)
    check_run(run)
    return run, path


def check_run(run: JudgeRun) -> None:
    """Fill in the usual prompt; raise BadJudgeSpec or BadPromptTemplate for options that do not go together."""
    for is_wrong, sentence in RULES:
        if is_wrong(run):
            raise DomainError("BadJudgeSpec", sentence.format(run=run))
    if run.judge_kind in (JudgeKind.CHAT, JudgeKind.CAUSAL):
        run.prompt = run.prompt or DEFAULT_PROMPT
        check_template(run.prompt)
        if run.n_examples and "{examples}" not in run.prompt:
            raise DomainError("BadJudgeSpec", f"n_examples is {run.n_examples}, but the prompt has no {{examples}}.")
    elif run.judge_kind == JudgeKind.SCORE and run.prompt:
        PromptTemplate.parse(run.prompt)


RULES: list[tuple[Callable[[JudgeRun], bool], str]] = [
    (lambda run: run.name == "new", "name is 'new', which is the address of the form; choose another one."),
    (
        lambda run: run.judge_kind != JudgeKind.FILE and not run.model,
        "model is empty; name the LM that judges.",
    ),
    (
        lambda run: run.judge_kind == JudgeKind.CHAT and not (run.base_url or settings.JUDGE_BASE_URL),
        "base_url is empty and KGHARVEST_JUDGE_BASE_URL is not set; give the endpoint's address.",
    ),
    (
        lambda run: run.judge_kind != JudgeKind.CHAT and bool(run.base_url),
        "base_url is for judges of the kind chat; leave it out of one of the kind {run.judge_kind}.",
    ),
    (
        lambda run: run.judge_kind == JudgeKind.SCORE and run.threshold is None,
        "threshold is missing; a score judge needs one, in nats, such as -8.5.",
    ),
    (
        lambda run: run.judge_kind != JudgeKind.SCORE and run.threshold is not None,
        "threshold is for judges of the kind score; leave it out of one of the kind {run.judge_kind}.",
    ),
    (
        lambda run: run.judge_kind in (JudgeKind.CAUSAL, JudgeKind.SCORE) and run.repeats > 1,
        "repeats is {run.repeats}, but a judge of the kind {run.judge_kind} says the same each time; give 1.",
    ),
    (
        lambda run: run.budget is not None and not (run.prompt_price or run.completion_price),
        "budget needs prompt_price or completion_price, of a million tokens; without these nothing costs.",
    ),
]


def spec_of(run: JudgeRun) -> Mapping[str, Any]:
    """Return the description of a run, without what is as usual; it makes the same judge again."""
    usual = JudgeRun()
    document = {"name": run.name, "kind": run.judge_kind}
    for name in JudgeRun.OPTIONS[1:]:
        value = getattr(run, name)
        if value != getattr(usual, name):
            document[name] = float(value) if isinstance(value, Decimal) else value
    return document


def example() -> str:
    """Return a description with every key, its usual value, and what may stand there."""
    shown = {"name": "llama-1", "kind": JudgeKind.CHAT.value, "model": "llama-3.3-70b"}
    fields = JudgeSpecSerializer().fields.items()
    lines = [line for name, field in fields for line in key_lines(name, shown.get(name, default_of(field)), field)]
    return "\n".join(["{", *lines, "}"])
