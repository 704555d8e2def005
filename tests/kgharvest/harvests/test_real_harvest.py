"""Harvest command with the embedded LM, from the options to the output file."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from django.core.management import call_command

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.embedded_lm.world import load_world
from kgharvest.models import HarvestJob, JobPrompt
from tests import factories

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(not (EMBEDDED_LMS["embedded"] / "config.json").is_file(), reason="the embedded LM is missing"),
]

[CAPITALS] = [relation.facts for relation in load_world() if relation.name == "capital_of"]


@pytest.fixture
def capital_of():
    return factories.make_relation(
        "capital_of",
        statement="<ENT0> is the capital of <ENT1>.",
        initial_prompts=["<ENT0> is the capital of <ENT1>.", "the capital of <ENT1> is <ENT0>."],
        seed_tuples=[["lisbon", "portugal"], ["berlin", "germany"]],
    )


def harvest_capitals(path) -> list[dict]:
    chosen = {"model": ["embedded"], "setting": ["human"], "candidates": 100, "max_entity_tokens": 1}
    call_command("harvest", relation=["capital_of"], wait=True, again=True, output=path, **chosen)
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_the_embedded_lm_finds_capitals_reproducibly(capital_of, tmp_path):
    rows = harvest_capitals(tmp_path / "first.jsonl")
    harvest_capitals(tmp_path / "second.jsonl")

    assert (tmp_path / "first.jsonl").read_bytes() == (tmp_path / "second.jsonl").read_bytes()
    n_true = sum(tuple(row["entities"]) in CAPITALS for row in rows[:20])
    assert n_true >= 10, f"only {n_true} of the top 20 tuples are facts of the embedded world"
    scores = [row["score"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert all(row["mtl"] < 0 for row in rows)
    weights = JobPrompt.objects.filter(job=HarvestJob.objects.first()).values_list("weight", flat=True)
    assert sum(weights) == pytest.approx(1)


class ChatEndpoint(BaseHTTPRequestHandler):
    """An OpenAI-compatible endpoint that answers every question with the same two paraphrases."""

    def do_POST(self):
        sentences = "Of {1}, {0} is the seat of government.\nThe city of {0} governs the country {1}."
        question = self.rfile.read(int(self.headers["Content-Length"])).decode()
        pair = ("lisbon", "portugal") if "lisbon" in question else ("berlin", "germany")
        body = json.dumps({"choices": [{"message": {"content": sentences.format(*pair)}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.mark.slow
def test_prompts_can_come_from_a_chat_endpoint(capital_of):
    server = HTTPServer(("127.0.0.1", 0), ChatEndpoint)
    Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    chat = {
        "paraphraser": "chat",
        "paraphraser_model": "m",
        "paraphraser_url": f"http://127.0.0.1:{server.server_port}",
    }

    call_command("harvest", relation=["capital_of"], wait=True, candidates=5, max_entity_tokens=1, **chat)

    server.shutdown()
    assert "The city of <ENT0> governs the country <ENT1>." in {
        prompt.prompt.text for prompt in JobPrompt.objects.all()
    }
