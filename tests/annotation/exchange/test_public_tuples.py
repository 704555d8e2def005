"""A round on published tuples of RoBERTa-large (BertNet results)."""

import pytest

from annotation.rounds.services import open_round
from kgharvest.harvests.tuple_files import Cell, import_tuples
from kgharvest.models import Relation
from kgharvest.relations.services import import_relations
from tests.factories import make_language_model

pytestmark = pytest.mark.django_db

FOLDERS = {"human": "1000tuples_initprompts", "top1": "1000tuples_top1prompts", "multi": "1000tuples_top20prompts"}


def test_round_can_be_opened_on_published_tuples(public_data):
    import_relations(public_data / "bertnet" / "relation_info" / "human.json")
    relation, language_model = Relation.objects.get(name="prevent"), make_language_model("roberta-large")
    jobs = [
        import_tuples(
            public_data / "bertnet/results/human" / folder / "roberta-large/prevent/ent_tuples.json",
            Cell(relation, language_model, setting),
        )
        for setting, folder in FOLDERS.items()
    ]

    round = open_round({"name": "paper", "cells": [{"job": job.pk, "n": 50, "cut": "share:0.5"} for job in jobs]})

    draws = [draw for stratum in round.strata.all() for draw in stratum.draws.select_related("task", "harvested_tuple")]
    assert len(draws) == 150
    assert round.n_tasks < 150  # settings share tuples
    assert all(entity.casefold() in draw.task.statement.casefold() for draw in draws for entity in draw.task.entities)
    assert max(draw.harvested_tuple.rank for draw in draws) <= 500
