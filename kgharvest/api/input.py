"""What clients send: JSON, filters of lists, numbers that databases can hold; and who has done what they are told."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import isfinite
from typing import Any

from django.db.models import QuerySet
from django.utils.text import capfirst
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.filters import BaseFilterBackend
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from kgharvest.access import knows
from kgharvest.engine.language_models.networks.placement import (
    DEFAULT_DEVICE,
    DEFAULT_DTYPE,
    DEVICE_HELP,
    DTYPE_HELP,
    DTYPES,
    check_placement,
)
from kgharvest.engine.types import EngineError
from kgharvest.jobs.devices import validate_device
from kgharvest.models import Project

LARGEST_NUMBER = 2**31 - 1  # that every integer column holds
LARGEST_ID = 2**63 - 1
WHO = "Null for the operator, and for people outside your projects."


class JsonParser(BaseParser):
    """Reads JSON in UTF-8; nesting too deep and numbers too long are errors of the client."""

    media_type = "application/json"

    def parse(self, stream, media_type=None, parser_context=None) -> Any:
        try:
            return json.loads(stream.read().decode("utf-8"), parse_constant=_refuse_constant)
        except UnicodeDecodeError:
            raise ParseError("The body is not UTF-8.") from None
        except json.JSONDecodeError as error:
            place = f"line {error.lineno}, column {error.colno}"
            raise ParseError(f"The body is not JSON ({place}: {error.msg}).") from None
        except RecursionError:
            raise ParseError("The body is nested too deeply.") from None
        except ValueError:  # Python reads no integers of more than some thousand digits
            raise ParseError("The body has a number that is none of JSON or too long.") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


class StrictSerializer(serializers.Serializer):
    """Takes no field that it does not have: one that is misspelt would else be left out without a word."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        values = super().to_internal_value(data)
        if unknown := sorted(set(map(str, data)) - set(self.fields)):
            sentence = f"There is no such field; the fields are {', '.join(self.fields) or 'none'}."
            raise serializers.ValidationError({name: [sentence] for name in unknown})
        return values


class PlacementInput(StrictSerializer):
    """What asks an LM: where it runs, and in which number format."""

    def get_fields(self) -> dict[str, serializers.Field]:
        where = f"Where the LM runs: {DEVICE_HELP}."
        return super().get_fields() | {
            "device": serializers.CharField(default=DEFAULT_DEVICE, validators=[validate_device], help_text=where),
            "dtype": serializers.ChoiceField([*DTYPES], default=DEFAULT_DTYPE, help_text=f"{capfirst(DTYPE_HELP)}."),
        }

    def validate(self, sent: dict[str, Any]) -> dict[str, Any]:
        try:
            check_placement(sent["device"], sent["dtype"])
        except EngineError as refusal:
            raise serializers.ValidationError({"dtype": [str(refusal)]}) from refusal
        return super().validate(sent)


class IdField(serializers.IntegerField):
    """The id of a row."""

    def __init__(self, **options: Any):
        super().__init__(min_value=1, max_value=LARGEST_ID, **options)


class FiniteField(serializers.FloatField):
    """A number that JSON can write; 1e999 is none."""

    def to_internal_value(self, data: Any) -> float:
        value = super().to_internal_value(data)
        if not isfinite(value):
            self.fail("invalid")
        return value


class VisibleField(serializers.PrimaryKeyRelatedField):
    """The id of a row that whoever asks may see."""

    def __init__(self, rows: QuerySet, **options: Any):
        super().__init__(queryset=rows, pk_field=IdField(), **options)

    def get_queryset(self) -> QuerySet:
        return super().get_queryset().visible_to(self.context["request"].user)


class ProjectField(serializers.SlugRelatedField):
    """A project of whoever asks, by its slug: usually that in which something is made."""

    def __init__(
        self,
        help_text: str = "Slug of the project to make it in; needed only where you work in several.",
        **options: Any,
    ):
        super().__init__(slug_field="slug", queryset=Project.objects, required=False, help_text=help_text, **options)

    def get_queryset(self) -> QuerySet:
        return Project.objects.visible_to(self.context["request"].user)


class PersonField(serializers.CharField):
    """Who has done something that the whole installation sees; null for people outside the projects of who asks."""

    def __init__(self, **options: Any):
        super().__init__(read_only=True, allow_null=True, help_text=WHO, **options)

    def to_representation(self, person: Any) -> str | None:
        return person.get_username() if knows(self.context["request"].user, person) else None


class CountField(serializers.IntegerField):
    """A number from `min_value`, 1 unless given, to the largest that columns hold."""

    def __init__(self, **options: Any):
        super().__init__(**{"min_value": 1, "max_value": LARGEST_NUMBER, **options})


class Filters(serializers.Serializer):
    """The query parameters that narrow a list. The `source` of a field is its lookup."""

    def narrow(self, rows: QuerySet) -> QuerySet:
        return rows.filter(**self.validated_data)


class ProjectFilters(Filters):
    project = serializers.CharField(required=False, max_length=100, source="project__slug", help_text="Slug.")


def checked_filters(view, filters_class: type[Filters], beside: Iterable[str] = ()) -> Filters:
    """Return the filters of a view's address, valid. `beside`: what else the address may have.

    Parameters that nobody knows are refused, not left out. Raises ValidationError.
    """
    query = view.request.query_params
    filters = filters_class(data=query.dict(), context={"view": view, "request": view.request})
    known = [*filters.fields, *beside]
    if unknown := sorted(set(query) - set(known)):
        sentence = f"There is no such parameter; there are {', '.join(known)}."
        raise serializers.ValidationError({name: [sentence] for name in unknown})
    filters.is_valid(raise_exception=True)
    return filters


class QueryFilters(BaseFilterBackend):
    """Narrows a view's rows by its `filters`."""

    def filter_queryset(self, request: Request, queryset: QuerySet, view) -> QuerySet:
        return checked_filters(view, view.filters, view.pagination_class.fields).narrow(queryset)
