"""Judged KGs of relations with entity labels and ids."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from django.db.models import F
from rdflib import Graph, Literal, URIRef

from annotation.rounds.services import open_round
from kgharvest.contrib.knowledge_graphs.judged_kg.formats import Export
from kgharvest.contrib.knowledge_graphs.judged_kg.rows import JudgedKG, Selection
from kgharvest.entities.tables import save_table
from kgharvest.models import KnowledgeTuple
from tests import factories
from tests.kgharvest.entities.test_entities import LABELS, harvest


@pytest.fixture
def linked(db):
    """Create a relation in a set with entity labels and ids."""
    relation_set = factories.make_relation_set("own")
    save_table(relation_set, True, True, ("labels.tsv", LABELS))
    return factories.make_relation("owns", relation_set=relation_set, seed_tuples=[["a", "b"]] * 2)


@pytest.mark.parametrize("selection", [Selection.JUDGED, Selection.ALL])
def test_judged_kg_contains_canonical_entities_and_ids(linked, selection, tmp_path):
    jobs = [harvest(linked, ("USA", "dogs"), ("Paris", "cats")), harvest(linked, ("the US", "a hound"))]
    round = open_round({"name": "r", "cells": [{"job": job.pk, "n": None} for job in jobs]})
    round.tasks.update(n_judgments=F("n_wanted"), n_true=F("n_wanted"), verdict="accepted")

    def write_format(file_format):
        Export(JudgedKG(round), file_format, selection).write_to(tmp_path / file_format)
        return tmp_path / file_format

    rows = sorted((row.canonical, row.ids) for row in JudgedKG(round).rows(selection))
    of_states = (["united states", "dog"], ["Q30", "Q144"])
    assert rows == [(["paris", "cat"], ["Q90", None]), of_states, of_states]
    assert pq.read_table(write_format("hf") / "data")["ids"].to_pylist().count(["Q30", "Q144"]) == 2
    graph = Graph().parse(write_format("nt"), format="nt")
    [states] = graph.subjects(URIRef("urn:kgharvest:vocabulary:identifier"), Literal("Q30"))
    assert states == URIRef("urn:kgharvest:entity:united%20states")


def test_correction_changes_only_undrawn_tuples(linked):
    job = harvest(linked, ("USA", "dogs"), ("Paris", "cats"))
    round = open_round({"name": "r", "cells": [{"job": job.pk, "n": 1}]})
    KnowledgeTuple.objects.update(corrected_entities=["France", "Puppy"], curation="corrected")

    rows = {row.verdict: (row.entities, row.canonical) for row in JudgedKG(round).rows(Selection.ALL)}

    assert rows["not_judged"] == (["France", "Puppy"], ["france", "puppy"])
    assert rows["incomplete"] in [(["USA", "dogs"], ["united states", "dog"]), (["Paris", "cats"], ["paris", "cat"])]
