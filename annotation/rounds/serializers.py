"""Serializers for API responses, and for the JSON description of a round in requests and files (docs/rounds.md).

The options of a description are derived from the fields of Round and Limits, so a new option needs no change here.
"""

from __future__ import annotations

import json
import math
import reprlib
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from annotation.models import Limits, Round
from annotation.rounds.models import LONGEST_INSTRUCTIONS, OPTIONS
from kgharvest.access import Action, may
from kgharvest.bulk.file_reading import read_json, read_text
from kgharvest.errors import DomainError, ImportRefused

LARGEST_ID = 2**63 - 1


# API responses


class RoundEntrySerializer(serializers.ModelSerializer):
    """List entry. n_tasks: number of statements, including `n_gold` gold statements; 0 for a draft."""

    project = serializers.CharField(source="project.slug")
    created_by = serializers.CharField(source="created_by.username", allow_null=True)
    archived = serializers.BooleanField(source="is_archived")

    class Meta:
        model = Round
        fields = [
            *("id", "name", "project", "status", "source", "n_tasks", "n_gold", "judgments_per_task"),
            *("created_by", "created_at", "opened_at", "closed_at", "archived"),
        ]


class RoundDetailSerializer(RoundEntrySerializer):
    """Details of a round. who_can_join can change while the round is open.

    join_url: null for drafts and for users who may only view the round.
    """

    spec = serializers.DictField(help_text="Description of the round without default values.")
    join_url = serializers.SerializerMethodField()

    class Meta(RoundEntrySerializer.Meta):
        fields = [*RoundEntrySerializer.Meta.fields, "who_can_join", "spec", "join_url"]

    @extend_schema_field(serializers.URLField(allow_null=True))
    def get_join_url(self, round: Round) -> str | None:
        request = self.context["request"]
        if round.status == Round.Status.DRAFT or not may(request.user, Action.WORK, round.project):
            return None
        return request.build_absolute_uri(reverse("annotation:join", args=[round.join_token]))


# The spec


def read_round_spec(path: Path) -> Any:
    """Parse a JSON file. Raises NoSuchFile, or BadRoundSpec with line and column."""
    try:
        return read_json(read_text(path), path.name)
    except ImportRefused as refused:
        fault = refused.entries[0]
        raise DomainError("BadRoundSpec", f"{path.name}, {fault.where}: the description {fault.reason}.") from refused


def round_from_spec(document: Any) -> Round:
    """Return an unsaved round without a project. Its `spec` is the description without default values.

    Raises BadRoundSpec with the path, the value, and the expected value of the first invalid key.
    """
    serializer = RoundSerializer(data=document)
    if not serializer.is_valid():
        raise DomainError("BadRoundSpec", first_fault(serializer, document, serializer.errors, ""))
    options = {name: serializer.validated_data[name] for name in OPTIONS}
    if (takes_guests := document.get("takes_guests")) is not None:
        if "who_can_join" in document:
            raise DomainError("BadRoundSpec", "takes_guests: Omit this key. who_can_join replaces it.")
        options["who_can_join"] = Round.WhoCanJoin.LINK if takes_guests else Round.WhoCanJoin.ACCOUNT
    spec = with_who_can_join(_without_defaults(serializer, document), options["who_can_join"])
    spec.pop("project", None)  # stored as Round.project
    spec["cells"] = [_without_defaults(serializer.fields["cells"].child, cell) for cell in spec["cells"]]
    round = Round(**options, spec=spec)
    try:
        round.clean()
    except ValidationError as error:
        [(name, [reason])] = error.message_dict.items()
        raise DomainError("BadRoundSpec", f"{name}: {reason}") from None
    return round


def with_who_can_join(spec: dict[str, Any], who_can_join: str) -> dict[str, Any]:
    """Return the description with the choice. Servers of the last release read takes_guests, not who_can_join."""
    others = {key: value for key, value in spec.items() if key not in ("takes_guests", "who_can_join")}
    keys = {Round.WhoCanJoin.LINK: {"takes_guests": True}, Round.WhoCanJoin.INVITE: {"who_can_join": "invite"}}
    return others | keys.get(who_can_join, {})


def cells_of(round: Round) -> list[Cell]:
    """Return the cells in the description of the round."""
    cells = CellSerializer(data=round.spec["cells"], many=True)
    if not cells.is_valid():
        raise DomainError("BadRoundSpec", first_fault(cells, round.spec["cells"], cells.errors, "cells"))
    return cells.validated_data


def _without_defaults(serializer: serializers.Serializer, document: Mapping[str, Any]) -> dict[str, Any]:
    fields = serializer.fields.items()
    return {name: document[name] for name, field in fields if name in document and document[name] != default_of(field)}


def default_of(field: serializers.Field) -> Any:
    return field.default() if callable(field.default) else field.default


def first_fault(field: serializers.Field, document: Any, errors: Any, path: str) -> str:
    """Return a sentence with the first error of a field and the path of the field, such as cells[0].n."""
    if isinstance(errors, Mapping):
        key, inner = next(iter(errors.items()))
        is_object = isinstance(field, serializers.Serializer) and isinstance(document, Mapping)
        if is_object and key == "non_field_errors":
            return f"{path} {inner[0]}"
        if is_object:
            name = f"{path}.{key}" if path else key
            if key not in field.fields:
                return f"Unknown key {name}. Valid keys: {', '.join(sorted(field.fields))}."
            if key not in document:
                return f"{name} is missing. See open_round --help for an example."
            return first_fault(field.fields[key], document[key], inner, name)
        if key != "non_field_errors":  # a list, or the instructions by relation
            name = f"{path}[{key}]" if isinstance(document, list) else f"{path}.{key}"
            return first_fault(field.child, document[key], inner, name)
    return f"{path or 'The description'} is {reprlib.repr(document)}. Expected {_expected(field)}."


def _expected(field: serializers.Field) -> str:
    """Return a noun phrase for the expected value."""
    if isinstance(field, serializers.ListSerializer):
        expected = 'a list of at least one cell, such as [{"job": 3, "n": 50}]'
    elif isinstance(field, serializers.ChoiceField):
        expected = f"one of {', '.join(field.choices)}"
    elif isinstance(field, serializers.Serializer):
        expected = f"a JSON object with the keys {', '.join(field.fields)}"
    else:
        expected = field.expected.format(field=field)
    return f"{expected}, or null" if field.allow_null else expected


# Fields with strict JSON types: true is not accepted as 1, nor "3" as 3


class OfType:
    """Field that accepts only values of `json_types`. expected: noun phrase that describes valid values."""

    json_types: tuple[type, ...]
    expected: str

    def to_internal_value(self, value: Any) -> Any:
        if type(value) not in self.json_types or (isinstance(value, float) and not math.isfinite(value)):
            raise serializers.ValidationError("wrong type")
        return super().to_internal_value(value)


class WholeNumber(OfType, serializers.IntegerField):
    json_types = (int,)
    expected = "a whole number from {field.min_value} to {field.max_value}"


class Number(OfType, serializers.FloatField):
    json_types = (int, float)
    expected = "a number from {field.min_value} to {field.max_value}"


class TrueOrFalse(OfType, serializers.BooleanField):
    json_types = (bool,)
    expected = "true or false"


class DateAndTime(OfType, serializers.DateTimeField):
    json_types = (str,)
    expected = 'a date and time such as "2030-01-31T18:00+01:00"'


class Text(OfType, serializers.CharField):
    json_types = (str,)
    expected = "a string of at most {field.max_length} characters without NUL or lone surrogates"

    def __init__(self, **kwargs):
        super().__init__(trim_whitespace=False, **kwargs)


class Name(Text, serializers.SlugField):
    expected = "a name of up to {field.max_length} letters, digits, hyphens, and underscores"


@extend_schema_field(
    {
        "oneOf": [
            {"type": "integer", "minimum": 2, "maximum": 100},
            {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 100},
        ]
    }
)
class Strata(serializers.Field):
    """Strata of a cell: the number of equally sized strata, or the first rank of each stratum, starting with 1."""

    expected = (
        "a number of strata from 2 to 100, or the first rank of each stratum in ascending order, such as [1, 100]"
    )

    def to_internal_value(self, value: Any) -> int | list[int]:
        is_number = type(value) is int and 2 <= value <= 100
        if not is_number and not (
            isinstance(value, list)
            and 2 <= len(value) <= 100
            and all(type(rank) is int for rank in value)
            and value[0] == 1
            and value == sorted(set(value))
        ):
            raise serializers.ValidationError("wrong strata")
        return value


class InstructionsByRelation(serializers.DictField):
    expected = 'Markdown by relation, such as {{"capital_of": "..."}}'

    def to_internal_value(self, value: Any) -> dict[str, str]:
        for name in value if isinstance(value, dict) else ():
            RELATION_NAME.run_validation(name)
        return super().to_internal_value(value)


RELATION_NAME = Text(max_length=500)


class Description(serializers.Serializer):
    """JSON object that rejects unknown keys."""

    def to_internal_value(self, document: Any) -> dict[str, Any]:
        if isinstance(document, Mapping) and (unknown := sorted(document.keys() - self.fields.keys())):
            raise serializers.ValidationError({unknown[0]: "unknown"}, code="unknown")
        return super().to_internal_value(document)


class Cell(SimpleNamespace):
    """A cell to sample. It has the fields of CellSerializer: either job, or relation, model, and setting."""

    def __str__(self) -> str:
        return f"job {self.job}" if self.job else f"{self.relation} × {self.model} × {self.setting}"


class CellSerializer(Description):
    job = WholeNumber(
        min_value=1, max_value=LARGEST_ID, allow_null=True, default=None, help_text="Id of a finished harvest job."
    )
    relation = Text(
        max_length=500,
        allow_blank=True,
        default="",
        help_text="Relation of the cell. Use it with model and setting instead of job. The newest harvest of the cell "
        "that has tuples is sampled.",
    )
    model = Text(max_length=500, allow_blank=True, default="")
    setting = Text(max_length=500, allow_blank=True, default="")
    n = WholeNumber(min_value=1, max_value=10_000_000, allow_null=True, help_text="Sample size; null for all tuples.")
    cut = Text(
        max_length=50,
        allow_blank=True,
        default="",
        help_text="Limits the sample to the best tuples of the harvest, for example top:100, share:0.5, base:10, or "
        "score:-9.",
    )
    strata = Strata(allow_null=True, default=None)
    allocation = serializers.ChoiceField(
        [
            ("equal", "Equal"),
            ("proportional", "Proportional to stratum size"),
            ("optimal", "Optimal given the labels of the judge (Neyman)"),
        ],
        default="equal",
        help_text="Allocation of n across the strata.",
    )

    def validate(self, cell: dict[str, Any]) -> Cell:
        n_missing = [cell["relation"], cell["model"], cell["setting"]].count("")
        if n_missing != (3 if cell["job"] else 0):
            raise serializers.ValidationError("requires either 'job', or 'relation', 'model', and 'setting'.")
        return Cell(**cell)


class ModelDescription(Description, serializers.ModelSerializer):
    """JSON object of model fields with their defaults, validators, and choices."""

    serializer_field_mapping = {
        models.IntegerField: WholeNumber,
        models.FloatField: Number,
        models.BooleanField: TrueOrFalse,
        models.CharField: Text,
        models.TextField: Text,
        models.SlugField: Name,
        models.DateTimeField: DateAndTime,
    }

    def build_standard_field(self, field_name: str, model_field: models.Field):
        field_class, kwargs = super().build_standard_field(field_name, model_field)
        if not kwargs.get("required", True):
            kwargs["default"] = model_field.get_default()
        return field_class, kwargs


class LimitsSerializer(ModelDescription):
    class Meta:
        model = Limits
        fields = Limits.OPTIONS


class RoundSerializer(ModelDescription):
    cells = CellSerializer(many=True, allow_empty=False)
    project = Text(
        max_length=100,
        allow_blank=True,
        default="",
        help_text="Project whose members can see the round and its reports. Optional if you work in only one project.",
    )
    takes_guests = TrueOrFalse(
        allow_null=True,
        default=None,
        help_text="Key of earlier versions: true for the value link of who_can_join, false for account.",
    )
    limits = LimitsSerializer(default=dict, help_text="Annotators who exceed a limit are paused.")
    relation_instructions = InstructionsByRelation(
        child=Text(max_length=LONGEST_INSTRUCTIONS, allow_blank=True),
        default=dict,
        help_text="Instructions by relation. They replace the default text.",
    )
    confirm_noise = TrueOrFalse(
        default=False,
        help_text="Open the round even if harvests are probably noise. Without it, such a round is not opened.",
    )

    class Meta:
        model = Round
        fields = (
            *("name", "cells", *OPTIONS[1:], "project", "takes_guests"),
            *("limits", "relation_instructions", "confirm_noise"),
        )
        # No uniqueness validator, because the services report NameTaken.
        extra_kwargs = {"name": {"validators": Round._meta.get_field("name").validators}}


def example() -> str:
    """Return an example description with every key, its default, and its valid values."""
    cell = CellSerializer(many=True).child
    lines = ["{", *key_lines("name", "pilot-1", RoundSerializer().fields["name"]), '  "cells": [{']
    for name, field in cell.fields.items():
        lines += ["  " + line for line in key_lines(name, {"job": 3, "n": 50}.get(name, field.default), field)]
    lines.append("  }],")
    for name, field in RoundSerializer().fields.items():
        if field.default is not serializers.empty:
            lines += key_lines(name, default_of(field), field)
    return "\n".join([*lines, "}"])


def key_lines(name: str, value: Any, field: serializers.Field) -> list[str]:
    has_default_label = field.label in (None, name.replace("_", " ").capitalize())
    comment = _expected(field) if has_default_label else f"{field.label}: {_expected(field)}"
    first, *more = textwrap.wrap(f"{comment}. {field.help_text or ''}", 80)
    key = f'  "{name}": {json.dumps(value)},'
    return [f"{key:<36}{first}", *(" " * 36 + line for line in more)]
