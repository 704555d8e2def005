"""Factories of drafts that compare settings of an LM, and of their plans."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from annotation.models import Round
from annotation.rounds.services import create_draft
from kgharvest.accounts.projects import default_project
from kgharvest.contrib.publishing.models import Preregistration
from kgharvest.contrib.publishing.preregistration.plan import PlanSerializer
from kgharvest.contrib.publishing.preregistration.services import freeze_preregistration
from kgharvest.models import LanguageModel
from tests.factories import make_harvest, make_language_model, make_relation

SIDES = {"first": {"model": "lm", "setting": "multi"}, "second": {"model": "lm", "setting": "human"}}
PLAN = {
    "primary_outcome": "Accuracy.",
    "exclusion_rules": "Nobody.",
    "stopping_rule": "All judged.",
    "analysis": "As usual.",
}


def make_draft(n_relations: int = 2, settings=("multi", "human"), name: str = "study", **spec) -> Round:
    """Create a draft with three tuples per relation and setting of one LM; no tuple repeats."""
    lm = LanguageModel.objects.filter(name="lm").first() or make_language_model("lm")
    jobs = []
    for number in range(n_relations):
        relation = make_relation(f"relation-{name}-{number}")
        for setting in settings:
            tuples = [(f"{setting} head {number} {row}", f"tail {row}") for row in range(3)]
            jobs.append(make_harvest(tuples, relation=relation, language_model=lm, setting=setting))
    document = {"name": name, "cells": [{"job": job.pk, "n": None} for job in jobs], **spec}
    return create_draft(document, project=default_project())


def planned(**fields: Any) -> dict[str, Any]:
    plan = PlanSerializer(data=PLAN | fields)
    assert plan.is_valid(), plan.errors
    return plan.validated_data


def freeze(round: Round, plan: dict[str, Any] | None = None) -> Preregistration:
    return freeze_preregistration(round, plan or planned(comparisons=[SIDES]), timezone.now())
