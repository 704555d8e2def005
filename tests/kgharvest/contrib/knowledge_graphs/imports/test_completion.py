"""Completion of heads and scores of tuples by a tiny T5 that was trained on two facts."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
import torch
from django.core.management import call_command
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from evaluation.scores.lookups import scores_of_content
from kgharvest.contrib.knowledge_graphs.imports.completion import question_of
from kgharvest.engine.language_models.loading import load_seq2seq
from kgharvest.harvests.tuple_files import Cell, import_tuples
from kgharvest.models import HarvestJob, LanguageModel
from tests.factories import make_relation
from tests.kgharvest.engine.prompts.test_seq2seq import tiny_t5

pytestmark = pytest.mark.django_db

FACTS = {"paris": "france", "rome": "italy"}
TEMPLATE = "{head} {relation} [GEN]"


@pytest.fixture(scope="module")
def comet(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tiny_t5(tmp_path_factory.mktemp("comet"), "paris rome france italy none CapitalOf [GEN]")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder)
    inputs = tokenizer([f"{head} CapitalOf [GEN]" for head in FACTS], return_tensors="pt")
    labels = tokenizer(text_target=list(FACTS.values()), return_tensors="pt").input_ids
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        model(**inputs, labels=labels).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def capital():
    return make_relation("capital_of")


def call(name: str, *arguments: str) -> str:
    out = StringIO()
    call_command(name, *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


def tuples_of(job: HarvestJob) -> list[tuple[list[str], float]]:
    return [(row.surface, row.score) for row in job.tuples.order_by("rank")]


def check_tails(job: HarvestJob, comet: str, n_heads: int) -> None:
    tuples = tuples_of(job)
    assert (job.language_model.name, job.status, job.n_tuples) == (comet, "succeeded", len(tuples))
    assert dict(entities for entities, _ in tuples[:n_heads]).items() <= FACTS.items()
    assert all(tail.strip() not in ("", "none") for (_, tail), _ in tuples)
    model = load_seq2seq(comet)
    for (head, tail), score in tuples[:n_heads]:
        [expected] = model.target_logprobs(f"{head} CapitalOf [GEN]", [tail])
        assert score == pytest.approx(expected, abs=1e-4)


def test_heads_of_a_file_become_a_harvest(comet, capital, tmp_path):
    heads = tmp_path / "heads.csv"
    heads.write_text("paris,1\n\nrome,2\nparis,3\n")

    out = call("complete_heads", "--model", comet, "--heads", str(heads), "--relation", "capital_of", "--tails", "3")

    job = HarvestJob.objects.get()
    assert (job.relation, job.setting) == (capital, "completion")
    assert out == f"Job {job.pk}: {job.n_tuples} tuples of {job}, from 2 heads.\n"
    check_tails(job, comet, 2)


def test_heads_of_a_harvest_are_completed(comet, capital, tmp_path):
    path = tmp_path / "tuples.jsonl"
    path.write_text('{"entities": ["rome", "x"], "score": -1}\n{"entities": ["rome", "y"], "score": -2}\n')
    harvested = import_tuples(path, Cell(capital, LanguageModel.objects.create(name="roberta"), "multi"))

    call("complete_heads", "--model", comet, "--job", str(harvested.pk), "--tails", "2", "--setting", "comet")

    job = HarvestJob.objects.latest("pk")
    assert job.setting == "comet"
    assert {entities[0] for entities, _ in tuples_of(job)} == {"rome"}
    check_tails(job, comet, 1)


def test_scored_tuples_are_a_file_of_scores(comet, tmp_path):
    pairs = [["paris", "france"], ["paris", "italy"], ["rome", "italy"], ["rome", "france"]]
    samples, output = tmp_path / "samples.jsonl", tmp_path / "comet.jsonl"
    rows = [{"relation": "set/capital_of", "entities": pair, "is_fact": True, "score": None} for pair in pairs]
    samples.write_text("\n".join(map(json.dumps, rows)))

    assert call("score_tuples", str(samples), "--model", comet, "--output", str(output), "--system", "COMET") == (
        f"{output}: scores of 4 tuples.\n"
    )

    scores = scores_of_content(output.read_bytes(), "comet.jsonl")["COMET"]
    by_pair = dict(scores["set/capital_of"])
    model = load_seq2seq(comet)
    for pair in pairs:
        assert by_pair[tuple(pair)] == pytest.approx(model.target_logprobs(f"{pair[0]} CapitalOf [GEN]", pair[1:])[0])
    assert min(by_pair[pair] for pair in FACTS.items()) > by_pair["paris", "italy"] > -1e6


@pytest.mark.parametrize(
    ("relation", "question"),
    [("used_for", "ox UsedFor [GEN]"), ("UsedFor", "ox UsedFor [GEN]"), ("kind_of", "ox IsA [GEN]")],
)
def test_relations_are_written_as_in_conceptnet(relation, question):
    assert question_of(TEMPLATE, "ox", relation) == question
    assert question_of("{head}", "{relation}", relation) == "{relation}"


def test_unusable_input_is_refused(comet, capital, tmp_path):
    heads, tuples = tmp_path / "heads.txt", tmp_path / "tuples.jsonl"
    heads.write_text("paris\n")
    tuples.write_text('{"relation": "r", "entities": ["a", "b", "c"]}\n{"entities": ["a", "b"]}\n[]\n')
    make_relation("does", arity=3)
    options = ["--model", comet, "--heads", str(heads)]

    for arguments, complaint in {
        (): "requires --relation",
        ("--relation", "does"): "has 3 entities. Use binary relations",
        ("--relation", "capital_of", "--template", "{relation}"): "lacks {head}",
    }.items():
        with pytest.raises(Exception, match=complaint):
            call("complete_heads", *options, *arguments)
    with pytest.raises(Exception, match=r"line 1: .*\n.*line 2: .*\n.*line 3: ") as refusal:
        call("score_tuples", str(tuples), "--model", comet, "--output", str(tmp_path / "o.jsonl"))
    assert not (tmp_path / "o.jsonl").exists(), refusal
    tuples.write_text("\n")
    with pytest.raises(Exception, match=r"(?s)tuples\.jsonl.*has no tuples"):
        call("score_tuples", str(tuples), "--model", comet, "--output", str(tmp_path / "o.jsonl"))
    assert not HarvestJob.objects.exists()


def test_model_that_writes_no_tail_is_reported(comet, capital, tmp_path, monkeypatch):
    heads = tmp_path / "heads.txt"
    heads.write_text("paris\n")
    monkeypatch.setattr(
        "kgharvest.engine.language_models.encoder_decoder.Seq2SeqModel.beam_with_logprobs",
        lambda self, text, n: [("", -1.0), ("None", -2.0)],
    )

    with pytest.raises(Exception, match="wrote no tail"):
        call("complete_heads", "--model", comet, "--heads", str(heads), "--relation", "capital_of")
    assert Path(heads).exists()
    assert not HarvestJob.objects.exists()
