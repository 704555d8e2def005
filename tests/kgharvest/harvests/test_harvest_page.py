"""Harvest page: scores, cuts, and run details."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

from kgharvest.harvests import cuts
from kgharvest.harvests.cuts import RankedTuples, StoredScores, draw_curve, parse_cut, score_curve, sizes_of
from kgharvest.models import HarvestedTuple, KnowledgeTuple, Prompt
from tests import factories

pytestmark = pytest.mark.django_db


def make_harvest(n: int, **fields):
    """Create a harvest with the scores -1, -2, ..., -n."""
    return factories.make_harvest([(f"head {number}", f"tail {number}") for number in range(n)], **fields)


# Scores


@pytest.mark.parametrize("cut", ["top:4", "share:0.5", "base:2", "score:-6.5", "score:0", "score:-100"])
def test_a_cut_of_stored_scores_equals_the_cut_of_a_list(monkeypatch, cut):
    monkeypatch.setattr(cuts, "SCORES_PER_QUERY", 3)
    job = make_harvest(10)
    listed = list(job.tuples.order_by("rank").values_list("score", flat=True))

    assert parse_cut(cut).size(StoredScores(job)) == parse_cut(cut).size(listed)


def test_a_cut_reads_a_few_blocks_of_a_long_list(monkeypatch, django_assert_max_num_queries):
    monkeypatch.setattr(cuts, "SCORES_PER_QUERY", 10)
    job = make_harvest(300)

    with django_assert_max_num_queries(8):  # out of thirty blocks
        assert parse_cut("base:100").size(StoredScores(job)) == 102  # -100 + ln 0.1 = -102.3


def test_cuts_longer_than_the_list_are_omitted():
    [size] = sizes_of([parse_cut("base:2"), parse_cut("base:100")], StoredScores(make_harvest(5)))

    assert (str(size.cut), size.size, size.lowest) == ("base:2", 4, -4.0)


def test_pages_are_selected_by_rank(django_assert_num_queries):
    ranked = RankedTuples(make_harvest(10), size=7)

    with django_assert_num_queries(1):
        assert [harvested.rank for harvested in ranked[5:10]] == [6, 7]
    assert ranked.count() == 7


def test_curve_spans_the_first_to_the_last_tuple(django_assert_num_queries):
    job = make_harvest(101)

    with django_assert_num_queries(1):
        curve = score_curve(job, n_points=5)

    assert curve == [(1, -1.0), (26, -26.0), (51, -51.0), (76, -76.0), (101, -101.0)]
    assert draw_curve(curve, cut_size=51).points == "0.0,0.0 150.0,40.0 300.0,80.0 450.0,120.0 600.0,160.0"
    assert draw_curve(curve, cut_size=51).kept_to == 300


@pytest.mark.parametrize("n", [0, 1])
def test_a_curve_needs_two_tuples(n):
    assert draw_curve(score_curve(make_harvest(n))) is None


def test_equal_scores_draw_a_horizontal_line():
    assert draw_curve([(1, -2.0), (2, -2.0)]).points == "0.0,0.0 600.0,0.0"


# Page


def test_a_cut_limits_the_page_and_the_export(researcher_client):
    job = make_harvest(10)

    response = researcher_client.get(job.get_absolute_url(), {"cut": "base:2"})

    page = response.content.decode()
    assert [harvested.rank for harvested in response.context["page_obj"]] == [1, 2, 3, 4]
    assert "4 of 10, lowest score −4.000" in page
    assert "tuples.csv?cut=base:2" in page
    assert "Export 4 tuples as" in page


@pytest.mark.parametrize(("cut", "sentence"), [("best", "Invalid cut"), ("base:50", "Reduce the base")])
def test_an_invalid_cut_is_explained_and_all_tuples_are_shown(researcher_client, cut, sentence):
    response = researcher_client.get(make_harvest(10).get_absolute_url(), {"cut": cut})

    assert sentence in response.content.decode()
    assert len(response.context["page_obj"]) == 10


def test_an_empty_cut_is_shown(researcher_client):
    response = researcher_client.get(make_harvest(3).get_absolute_url(), {"cut": "score:0"})

    page = response.content.decode()
    assert "0 of 3" in page
    assert "Export 0 tuples as" in page
    assert list(response.context["page_obj"]) == []


def test_the_page_shows_run_details(researcher_client):
    job = make_harvest(
        2,
        summary={
            "seconds": {"loading the LM": 1.5, "search": 2.25, "rescore": 0.5},
            "revision": "abc123",
            "code_version": "0.1.0+deadbeef",
            "rejected": {"stop_word": 7},
            "parts": {"n": 23, "n_workers": 2},
        },
        payload={"device": "cpu", "dtype": "float32", "spec": {"params": {"candidates": 30, "max_tuples": None}}},
    )

    page = researcher_client.get(job.get_absolute_url()).content.decode()

    for detail in (
        "2.8 s",
        "abc123",
        "0.1.0+deadbeef",
        "stop word",
        "<code>candidates</code>",
        "cpu, float32",
        "23 parts on 2 workers",
    ):
        assert detail in page


def test_the_page_shows_the_lines_of_a_prompt(researcher_client):
    job = make_harvest(1)
    prompt = Prompt.objects.create(relation=job.relation, text="a < b\n<ENT0>\n<ENT1>", origin="created")
    job.job_prompts.create(prompt=prompt, weight=1.0, compatibility=-5.0)

    page = researcher_client.get(job.get_absolute_url()).content.decode()

    slots = [f'<code class="slot">&lt;ENT{slot}&gt;</code>' for slot in range(2)]
    assert "<br>".join(["a &lt; b", *slots]) in page


def test_the_page_explains_learned_prompts(researcher_client):
    job = make_harvest(2, setting="soft")
    prompt = Prompt.objects.create(relation=job.relation, text="<ENT0> ‹halts› <ENT1>", origin="learned")
    job.job_prompts.create(prompt=prompt, weight=1.0, compatibility=-5.0)

    page = researcher_client.get(job.get_absolute_url()).content.decode()

    assert "Each ‹word› is the nearest word" in page


def test_the_page_shows_the_number_of_excluded_tuples(researcher_client):
    job = factories.make_harvest([["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"]])
    KnowledgeTuple.objects.filter(key__startswith="a").update(curation="hidden", is_sensitive=True)
    KnowledgeTuple.objects.filter(key__startswith="g").update(is_sensitive=True)

    page = researcher_client.get(job.get_absolute_url()).content.decode()
    assert "Export 2 tuples as" in page
    assert "2 hidden or sensitive tuples excluded" in page

    page = researcher_client.get(job.get_absolute_url(), {"cut": "top:2"}).content.decode()
    assert "Export 1 tuple as" in page
    assert "1 hidden or sensitive tuple excluded" in page
    assert "Export all 2, including it, as" in page
    assert ranks_in(page, researcher_client) == [[2], [1, 2]]


def ranks_in(page: str, client) -> list[list[int]]:
    """Return the ranks in each JSONL file linked on the page."""
    files = (client.get(unescape(href)) for href in re.findall(r'href="([^"]*tuples\.jsonl[^"]*)"', page))
    return [[json.loads(line)["rank"] for line in b"".join(file).splitlines()] for file in files]


def test_hidden_tuples_are_marked(researcher_client):
    job = make_harvest(2)
    hidden = HarvestedTuple.objects.get(job=job, rank=1).knowledge_tuple
    hidden.curation = "hidden"
    hidden.save()

    assert '<span class="badge">hidden</span>' in researcher_client.get(job.get_absolute_url()).content.decode()
