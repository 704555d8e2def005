"""Serializer fields and list filters of the API."""

from collections.abc import Iterable
from math import isfinite
from typing import Any

from django.db.models import QuerySet
from django.utils.text import capfirst
from rest_framework import serializers
from rest_framework.filters import BaseFilterBackend
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

LARGEST_NUMBER = 2**31 - 1  # maximum value of integer columns
LARGEST_ID = 2**63 - 1


class StrictSerializer(serializers.Serializer):
    """Serializer that rejects unknown fields, so that misspelled field names are not silently ignored."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        values = super().to_internal_value(data)
        if unknown := sorted(set(map(str, data)) - set(self.fields)):
            sentence = f"Unknown field. Valid fields: {', '.join(self.fields) or 'none'}."
            raise serializers.ValidationError({name: [sentence] for name in unknown})
        return values


class PlacementInput(StrictSerializer):
    """LM placement: device and dtype."""

    def get_fields(self) -> dict[str, serializers.Field]:
        help_text = f"Device of the LM: {DEVICE_HELP}."
        return super().get_fields() | {
            "device": serializers.CharField(default=DEFAULT_DEVICE, validators=[validate_device], help_text=help_text),
            "dtype": serializers.ChoiceField([*DTYPES], default=DEFAULT_DTYPE, help_text=f"{capfirst(DTYPE_HELP)}."),
        }

    def validate(self, sent: dict[str, Any]) -> dict[str, Any]:
        try:
            check_placement(sent["device"], sent["dtype"])
        except EngineError as refusal:
            raise serializers.ValidationError({"dtype": [str(refusal)]}) from refusal
        return super().validate(sent)


class IdField(serializers.IntegerField):
    def __init__(self, **options: Any):
        super().__init__(min_value=1, max_value=LARGEST_ID, **options)


class FiniteField(serializers.FloatField):
    """A finite number.

    Infinity must be rejected explicitly, because JSON numbers such as 1e999 are parsed as infinity.
    """

    def to_internal_value(self, data: Any) -> float:
        value = super().to_internal_value(data)
        if not isfinite(value):
            self.fail("invalid")
        return value


class VisibleField(serializers.PrimaryKeyRelatedField):
    """Id of a row that the user can see."""

    def __init__(self, rows: QuerySet, **options: Any):
        super().__init__(queryset=rows, pk_field=IdField(), **options)

    def get_queryset(self) -> QuerySet:
        return super().get_queryset().visible_to(self.context["request"].user)


class ProjectField(serializers.SlugRelatedField):
    """Slug of one of the user's projects. The default help text is for the project of a new object."""

    def __init__(
        self,
        help_text: str = "Slug of the project of the new object. Required only if you work in several projects.",
        **options: Any,
    ):
        super().__init__(slug_field="slug", queryset=Project.objects, required=False, help_text=help_text, **options)

    def get_queryset(self) -> QuerySet:
        return Project.objects.visible_to(self.context["request"].user)


class PersonField(serializers.CharField):
    """User who acted on shared data. Null for people outside the reader's projects; see `kgharvest.access.knows`."""

    def __init__(self, **options: Any):
        help_text = "Username; null for the operator and for people outside your projects."
        super().__init__(read_only=True, allow_null=True, help_text=help_text, **options)

    def to_representation(self, person: Any) -> str | None:
        return person.get_username() if knows(self.context["request"].user, person) else None


class CountField(serializers.IntegerField):
    """Integer from `min_value` (default 1) to the limit of integer columns."""

    def __init__(self, **options: Any):
        super().__init__(**{"min_value": 1, "max_value": LARGEST_NUMBER, **options})


class Filters(serializers.Serializer):
    """Query parameters that filter a list. The `source` of each field is the lookup to filter by."""

    def narrow(self, rows: QuerySet) -> QuerySet:
        return rows.filter(**self.validated_data)


class ArchiveFilters(Filters):
    """Filters of rows that can be archived, with a queryset method `archived`."""

    archived = serializers.BooleanField(default=False, help_text="True for archived rows; default: all other rows.")

    def narrow(self, rows: QuerySet) -> QuerySet:
        lookups = dict(self.validated_data)
        return rows.archived(lookups.pop("archived")).filter(**lookups)


class ProjectFilters(Filters):
    project = serializers.CharField(required=False, max_length=100, source="project__slug", help_text="Project slug.")


def checked_filters(view, filters_class: type[Filters], other_parameters: Iterable[str] = ()) -> Filters:
    """Return the validated filters of a request. other_parameters: names of other valid query parameters.

    Raises ValidationError, also for unknown parameters.
    """
    query = view.request.query_params
    filters = filters_class(data=query.dict(), context={"view": view, "request": view.request})
    parameters = [*filters.fields, *other_parameters]
    if unknown := sorted(set(query) - set(parameters)):
        sentence = f"Unknown parameter. Valid parameters: {', '.join(parameters)}."
        raise serializers.ValidationError({name: [sentence] for name in unknown})
    filters.is_valid(raise_exception=True)
    return filters


class QueryFilters(BaseFilterBackend):
    """Filter backend that applies the `filters` of a view."""

    def filter_queryset(self, request: Request, queryset: QuerySet, view) -> QuerySet:
        return checked_filters(view, view.filters, view.pagination_class.fields).narrow(queryset)
