"""Pages of the knowledge base: search, cost, and access."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from django.urls import reverse

from kgharvest.accounts.projects import publish_knowledge
from kgharvest.bulk import pagination
from kgharvest.bulk import pagination as lists
from kgharvest.knowledge.entity_graph import shortened
from kgharvest.knowledge.search import was_found_by
from kgharvest.models import Curation, HarvestJob, KnowledgeTuple, SensitiveWord
from tests import factories

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("installation_owner")]

ODD = ["=1+1", 'say "hi", twice', "שלום עולם", "<script>alert(1)</script>", "é" * 200, "a\nb"]
LIST = reverse("kgharvest:tuple_list")


@pytest.fixture
def relation():
    return factories.make_relation("prevent", statement="<ENT0> prevents <ENT1> .")


@pytest.fixture
def multi(relation) -> HarvestJob:
    tuples = [["Dam", "Flood"], ["vaccine", "measles"], ["lock", "theft"]]
    return factories.make_harvest(tuples, relation=relation, language_model=factories.make_language_model("big"))


def heads(response) -> list[str]:
    return [row["tuple"].entities[0] for row in response.context["rows"]]


def claim(key: str) -> KnowledgeTuple:
    return KnowledgeTuple.objects.get(key__startswith=key)


@pytest.mark.parametrize("name", ["tuple_list", "sensitive_words", "entity", "entity_graph"])
def test_annotators_cannot_see_the_knowledge_base(client, name):
    client.force_login(factories.make_user())

    assert client.get(reverse(f"kgharvest:{name}"), {"name": "dam"}).status_code == 403


def test_annotators_can_neither_see_nor_curate_a_tuple(client, multi):
    client.force_login(factories.make_user())

    assert client.get(claim("dam").get_absolute_url()).status_code == 403
    assert client.post(claim("dam").get_absolute_url(), {"decision": "hide", "reason": "no"}).status_code == 403
    assert not Curation.objects.exists()


def test_the_list_costs_the_same_for_any_number_of_tuples(researcher_client, relation, django_assert_num_queries):
    factories.make_harvest([[f"head {n}", f"tail {n}"] for n in range(60)], relation=relation)

    with django_assert_num_queries(10):  # session, user; relations, LMs, settings; tuples, cells, noisy, tasks, count
        response = researcher_client.get(LIST)

    assert len(response.context["rows"]) == 50


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"entity": "FLO"}, ["dam"]),
        ({"entity": "flo", "match": "whole"}, []),
        ({"entity": "Theft", "match": "whole"}, ["lock"]),
        ({"entity": "theft", "match": "whole", "slot": "0"}, []),
        ({"entity": "flo", "slot": "1"}, ["dam"]),
        ({"model": "big"}, ["dam", "vaccine", "lock"]),
        ({"model": "small"}, ["vaccine", "seat belt"]),
        ({"model": "big", "setting": "human"}, []),
        ({"score_from": "-2"}, ["dam", "vaccine", "seat belt"]),
        ({"score_from": "-2", "score_to": "-1.5"}, ["seat belt"]),
        ({"state": "hidden"}, ["lock"]),
        ({"state": "sensitive"}, ["dam"]),
        ({"sort": "score"}, ["lock", "seat belt", "dam", "vaccine"]),
        ({"sort": "-harvests"}, ["vaccine", "seat belt", "lock", "dam"]),
        ({"entity": "vac", "model": "small", "sort": "-age"}, ["vaccine"]),
    ],
)
@pytest.mark.parametrize("few", [0, 5000])  # covers both query strategies
def test_tuples_are_found_by_each_filter(researcher_client, monkeypatch, relation, multi, query, expected, few):
    monkeypatch.setattr("kgharvest.bulk.pagination.MOST_LOOKED_UP", few)
    small = factories.make_language_model("small")
    factories.make_harvest(
        [["vaccine", "measles"], ["seat belt", "injury"]], relation=relation, language_model=small, setting="human"
    )
    KnowledgeTuple.objects.filter(key__startswith="lock").update(curation="hidden")
    KnowledgeTuple.objects.filter(key__startswith="dam").update(is_sensitive=True)
    models = {"big": multi.language_model_id, "small": small.pk}
    query = {name: models.get(value, value) for name, value in query.items()}

    response = researcher_client.get(LIST, query)

    if "sort" in query:
        assert heads(response) == expected or query["sort"] == "score"
    assert set(heads(response)) == set(expected)


def test_tuples_are_found_by_visible_verdicts(researcher_client, researcher, client):
    round = factories.make_round([("dam", "flood"), ("lock", "theft")], by=researcher)
    factories.judge_all(round, ["true", "false"], ["true", "false"], ["true", "true"])

    assert heads(researcher_client.get(LIST, {"verdict": "accepted"})) == ["dam"]
    assert "rejected" in researcher_client.get(claim("lock").get_absolute_url()).content.decode()
    client.force_login(factories.make_researcher(project=factories.make_project()))
    assert client.get(claim("lock").get_absolute_url()).status_code == 404
    publish_knowledge(round.project, "all")
    assert heads(client.get(LIST, {"verdict": "accepted"})) == []
    assert "No judgments in your rounds yet" in client.get(claim("lock").get_absolute_url()).content.decode()


def test_an_invalid_filter_shows_an_error(researcher_client, multi):
    page = researcher_client.get(LIST, {"score_from": "high", "relation": "4711", "after": "x", "sort": "x"})

    assert "Enter a number" in page.content.decode()
    assert heads(page) == []


@pytest.mark.parametrize("after", ["inf,1", "nan,1", "1", ",", f"1,{10**30}", f"{10**300},1"])
@pytest.mark.parametrize("sort", ["-score", "harvests", "age"])
def test_an_invalid_cursor_in_a_url_shows_a_page(researcher_client, multi, after, sort):
    assert researcher_client.get(LIST, {"sort": sort, "after": after}).status_code == 200


@pytest.mark.parametrize("sort", ["-score", "score", "-harvests", "harvests", "-age", "age"])
def test_pagination_works_in_both_directions_through_ties(researcher_client, monkeypatch, relation, sort):
    monkeypatch.setattr(lists, "ROWS_PER_PAGE", 4)
    for start in (0, 3):  # equal scores and equal numbers of harvests
        factories.make_harvest([[f"h{n}", "t"] for n in range(start, start + 7)], relation=relation)

    address, seen, previous = {"sort": sort}, [], []
    while True:
        response = researcher_client.get(LIST, address)
        page = response.context["page"]
        seen.append(heads(response))
        if page.before:
            back = researcher_client.get(LIST, {"sort": sort, "before": str(page.before)})
            previous.append(heads(back))
        if page.after is None:
            break
        address = {"sort": sort, "after": str(page.after)}

    assert [len(page) for page in seen] == [4, 4, 2]
    assert len({head for page in seen for head in page}) == 10
    assert previous == seen[:-1]


def test_search_for_rare_matches_scans_bounded_batches(researcher_client, monkeypatch, relation, multi):
    monkeypatch.setattr("kgharvest.bulk.pagination.MOST_LOOKED_UP", 0)
    monkeypatch.setattr(pagination, "MOST_SCANNED", 4)
    factories.make_harvest([[f"h{n}", "t"] for n in range(9)], relation=relation)  # scores -1 to -9
    address, seen = {"model": multi.language_model_id}, []  # scores -1, -2, -3

    while True:
        page = researcher_client.get(LIST, address)
        seen.append(heads(page))
        if page.context["page"].after is None:
            break
        address["after"] = str(page.context["page"].after)
    back = researcher_client.get(LIST, {**address, "after": "", "before": address["after"]})

    assert seen == [["dam", "vaccine"], ["lock"], [], []]
    assert heads(back) == []


def test_counts_of_long_lists_are_bounded(researcher_client, monkeypatch, relation):
    monkeypatch.setattr(pagination, "COUNTED_UP_TO", 5)
    monkeypatch.setattr("kgharvest.knowledge.views.COUNTED_UP_TO", 5)
    factories.make_harvest([[f"h{n}", "t"] for n in range(7)], relation=relation)

    assert "more than 5 tuples" in researcher_client.get(LIST).content.decode()


# An entity


def test_an_entity_page_lists_tuples_by_relation_and_slot(researcher_client, relation, multi):
    other = factories.make_relation("in", arity=3)
    factories.make_harvest([["x", "dam", "y"], ["dam", "river", "z"]], relation=other)

    response = researcher_client.get(reverse("kgharvest:entity"), {"name": "DAM"})

    places = {
        (role["relation"].name, role["slot"]): [row["tuple"].entities for row in role["rows"]]
        for role in response.context["roles"]
    }
    assert places == {
        ("prevent", 0): [["dam", "flood"]],
        ("in", 0): [["dam", "river", "z"]],
        ("in", 1): [["x", "dam", "y"]],
    }
    assert "big: multi" in response.content.decode()


def test_an_entity_costs_the_same_for_any_number_of_tuples(researcher_client, django_assert_num_queries):
    for _ in range(4):
        factories.make_harvest([["dam", f"tail {n}"] for n in range(20)])

    with django_assert_num_queries(9):  # session, user; places, relations, few?, tuples, cells, noisy, tasks
        response = researcher_client.get(reverse("kgharvest:entity"), {"name": "dam"})

    assert (response.context["n"], response.context["n_shown"]) == (80, 50)


def test_an_unknown_entity_is_404(researcher_client):
    assert researcher_client.get(reverse("kgharvest:entity"), {"name": "nothing"}).status_code == 404


def test_the_entity_graph_is_deterministic_and_shows_the_neighbors(researcher_client, multi):
    address = reverse("kgharvest:entity_graph"), {"name": "dam"}

    response = researcher_client.get(*address)

    assert response["Content-Type"] == "image/svg+xml"
    texts = texts_of(response)
    assert texts.keys() == {"floodprevent", "dam"}
    assert texts["dam"][0] < 100 < texts["floodprevent"][0]  # no empty column without preceding entities
    assert researcher_client.get(*address).content == response.content


def texts_of(response) -> dict[str, tuple[float, float]]:
    """Return the texts of a graph with their positions."""
    texts = ElementTree.fromstring(response.content).iter("{http://www.w3.org/2000/svg}text")
    return {"".join(text.itertext()): (float(text.get("x")), float(text.get("y"))) for text in texts}


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("", ""),
        ("four", "four"),
        ("fiver", "fiv…"),
        ("a b c", "a b…"),
        ("日本", "日本"),
        ("日本語", "日…"),
        ("日a日", "日a…"),
    ],
)
def test_labels_are_truncated_to_their_columns(text, label):
    assert shortened(text, 4) == label


def test_tall_graph_shows_preceding_entities_above_the_others(researcher_client):
    relation = factories.make_relation("stops")
    factories.make_harvest(
        [["dam", "flood"], ["flood", "mud"], ["levee", "flood"], ["flood", "loss"]], relation=relation
    )

    texts = texts_of(researcher_client.get(reverse("kgharvest:entity_graph"), {"name": "flood", "shape": "tall"}))

    assert sorted(texts, key=lambda text: texts[text][1]) == [
        "damstops",
        "leveestops",
        "flood",
        "mudstops",
        "lossstops",
    ]
    assert max(x for x, _ in texts.values()) < 100


@pytest.mark.parametrize("entity", ODD)
def test_odd_entities_are_shown_escaped_and_found_again(researcher_client, entity):
    factories.make_harvest([[entity, "tail"]])
    shown = researcher_client.get(LIST).content.decode()
    detail = researcher_client.get(KnowledgeTuple.objects.get().get_absolute_url())

    href = detail.content.decode().split('<dt>Entity 0</dt><dd><a href="')[1].split('"')[0].replace("&amp;", "&")
    page = researcher_client.get(href)

    assert "<script>alert" not in shown + detail.content.decode() + page.content.decode()
    assert page.context["entity"] == entity.casefold()
    ElementTree.fromstring(researcher_client.get(reverse("kgharvest:entity_graph"), {"name": entity}).content)


# Decisions


def test_a_tuple_is_hidden_and_restored_on_its_page(researcher_client, researcher, multi):
    page = claim("dam").get_absolute_url()

    researcher_client.post(page, {"decision": "hide", "reason": "private"})
    assert "Hidden: this tuple is excluded" in researcher_client.get(page).content.decode()
    researcher_client.post(page, {"decision": "restore", "reason": "is public"})

    assert claim("dam").curation is None
    assert [str(decision.decided_by) for decision in Curation.objects.all()] == [str(researcher)] * 2


def test_a_correction_error_is_shown_in_the_form(researcher_client, multi):
    form = {"decision": "correct", "reason": "typo", "entity_0": "dams", "entity_1": ""}

    page = researcher_client.post(claim("dam").get_absolute_url(), form).content.decode()

    assert "entity that is empty" in page
    assert not Curation.objects.exists()


def test_a_tuple_page_shows_harvests_within_a_query_budget(researcher_client, multi, django_assert_num_queries):
    address = claim("dam").get_absolute_url()

    with django_assert_num_queries(7):  # session, user, group; tuple, findings, tasks, curations
        page = researcher_client.get(address).content.decode()

    assert "<b><bdi>Dam</bdi></b> prevents <b><bdi>Flood</bdi></b>." in page


# Sensitive words


def test_the_list_of_words_is_edited_on_its_page(researcher_client, enqueued):
    page = reverse("kgharvest:sensitive_words")

    researcher_client.post(page, {"words": "Tulip\r\n\r\nblack  tulip\n"})
    assert list(SensitiveWord.objects.values_list("word", flat=True)) == ["black tulip", "tulip"]
    researcher_client.post(page, {"words": "x", "shipped": "1"})

    assert SensitiveWord.objects.filter(word="genocide").exists()
    assert len(enqueued) == 2


@pytest.mark.django_db
def test_a_search_in_many_harvests_uses_few_sql_parameters():
    harvests = [factories.make_harvest([(f"a{number}", "b")]) for number in range(3)]

    for n in (1, 3):
        jobs = HarvestJob.objects.filter(pk__in=[job.pk for job in harvests[:n]])
        found = KnowledgeTuple.objects.filter(was_found_by(jobs).condition)
        assert found.count() == n
        assert len(found.query.sql_with_params()[1]) == 3
