"""One row of every model, created without services, for tests that cover all tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

from django.apps import apps
from django.apps.registry import Apps
from django.db import models
from django.db.models import Field, Model

AT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)

# Field values that constraints require, by "app.Model".
FIELDS: dict[str, Mapping[str, Any]] = {
    "kgharvest.RelationSet": {"is_shipped": False},
    "kgharvest.Delivery": {"state": "delivered", "delivered_at": AT},
    "annotation.Round": {
        "judgments_per_task": 3,
        "gold_share": 0.1,
        "dominance_cap": 0.3,
        "closes_when": "date",
        "closes_at": AT,
        "closes_at_half_width": None,
    },
    "kgharvest.KnowledgeTuple": {"curation": "corrected"},
    "kgharvest.Curation": {"decision": "correct"},
    "annotation.Stratum": {"population": 10, "sample_size": 2, "rank_from": 1, "rank_to": 10},
    "annotation.JudgmentTask": {
        "is_gold": False,
        "gold_label": "",
        "n_wanted": 3,
        "n_leased": 0,
        "verdict": "accepted",
        "n_judgments": 3,
        "n_true": 2,
        "n_false": 1,
        "n_unjudgeable": 0,
    },
    "annotation.Draw": {"inclusion_probability": 0.2},
    "annotation.Judgment": {"label": "true", "wrong_part": "", "is_counted": True, "is_excluded": False},
    "annotation.StatementReport": {"reason": "other"},
    "annotation.Adjudication": {"label": "true"},
    "annotation.Invite": {"revoked_at": None},
    "annotation.CheckTry": {"number": 1},
    "annotation.TrainingStatement": {"label": "true"},
    "annotation.Training": {"n_right": 1, "n_answered": 2},
}

_numbers = count(1)


def models_in_order(registry: Apps = apps) -> list[type[Model]]:
    """Return all models, each after the targets of its required foreign keys.

    registry: models of a migration state. Defaults to the current models.
    """
    ordered: list[type[Model]] = []

    def add(model: type[Model]) -> None:
        if model in ordered:
            return
        for field in model._meta.local_concrete_fields:
            if field.remote_field and not field.null:
                add(field.remote_field.model._meta.concrete_model)
        ordered.append(model)

    for model in registry.get_models(include_auto_created=True):
        if not model._meta.proxy:
            add(model)
    return ordered


def make_row_of_every_model(registry: Apps = apps) -> None:
    for model in models_in_order(registry):
        if not model._default_manager.exists():
            make_row(model)


def make_row(model: type[Model]) -> Model:
    """Create a row with a value in every field, including nullable foreign keys if a target row exists."""
    overrides = {
        name: value
        for ancestor in [*model.__mro__][::-1]
        if hasattr(ancestor, "_meta")
        for name, value in FIELDS.get(ancestor._meta.label, {}).items()
        if name in {field.name for field in model._meta.concrete_fields}  # an old release lacks newer fields
    }
    values = {
        field.name: _value(field)
        for field in model._meta.concrete_fields
        if field.name not in overrides
        and not isinstance(field, models.AutoField | models.BigAutoField)
        and not getattr(field.remote_field, "parent_link", False)
    }
    row = model(**values, **overrides)
    models.Model.save(row)  # skips overridden `save` methods, which derive values from a complete document
    return row


def _value(field: Field) -> Any:
    if field.remote_field:
        return field.remote_field.model._default_manager.order_by("pk").last()
    if field.choices:
        return field.choices[0][0]
    number = next(_numbers)
    by_type: dict[type[Field], Any] = {
        models.JSONField: {"b": 1e16, "a": [1.0, None, "é"]},
        models.BinaryField: bytes(range(256)),
        models.UUIDField: UUID(int=number),
        models.DateTimeField: AT,
        models.BooleanField: True,
        models.DecimalField: Decimal("0.1"),
        models.FloatField: 0.1 + 0.2,
        models.IntegerField: number,
        models.URLField: f"https://example.org/{number}",
        models.EmailField: f"{number}@example.org",
        models.SlugField: f"name-{number}",
        models.CharField: f"{number}é 😀"[: field.max_length],
        models.TextField: f"{number} größer",
    }
    return next(value for kind, value in by_type.items() if isinstance(field, kind))
