"""What belongs to the installation is changed by who made it or a superuser, whatever page it is asked from."""

import pytest
from django.apps import apps
from django.test import Client

from kgharvest.access import MAY_CHANGE, may_change
from kgharvest.models import HarvestJob, Job, KnowledgeTuple, Launch, Relation, RelationSet, SensitiveWord
from tests.factories import make_harvest, make_harvest_job, make_relation, make_relation_set, make_researcher

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner():
    return make_researcher()


def client_of(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_every_rule_lets_the_operator_and_superusers_and_no_stranger(owner, researcher):
    harvest = make_harvest([("dam", "flood")], created_by=owner)
    subjects = [make_relation_set(created_by=owner), harvest, Launch.objects.create(created_by=owner)]
    subjects += [KnowledgeTuple.objects.get(), SensitiveWord]

    assert [may_change(None, subject) for subject in subjects] == [True] * 5
    assert [may_change(owner, subject) for subject in subjects] == [True, True, True, True, False]
    assert [may_change(researcher, subject) for subject in subjects] == [False] * 5
    researcher.is_superuser = True
    assert [may_change(researcher, subject) for subject in subjects] == [True] * 5


def test_the_rules_are_of_models_that_there_are():
    assert MAY_CHANGE.keys() <= {model.__name__ for model in apps.get_models()}


def test_a_relation_set_of_somebody_else_stays_as_it_is(owner, researcher_client):
    relation = make_relation("mine", relation_set=make_relation_set("own", created_by=owner))
    before = RelationSet.objects.values().get(), Relation.objects.values().get()
    written = {"name": "other", "set_name": "own", "statement": "<ENT0> is <ENT1>.", "seed_tuples": "a | b\nc | d"}

    for path, sent in [
        (f"/relations/{relation.pk}/delete/", {}),
        (f"/relations/{relation.pk}/edit/", written),
        ("/relations/new/", written),
        (f"/relations/sets/{relation.relation_set_id}/delete/", {}),
        (f"/relations/sets/{relation.relation_set_id}/edit/", {"name": "stolen", "description": ""}),
    ]:
        page = researcher_client.post(path, sent, follow=True).text
        assert "Only who made" in page, path

    assert (RelationSet.objects.values().get(), Relation.objects.values().get()) == before


def test_who_makes_a_set_owns_it(researcher, researcher_client):
    written = {"name": "own", "set_name": "mine", "statement": "<ENT0> is <ENT1>.", "seed_tuples": "a | b\nc | d"}

    researcher_client.post("/relations/new/", written)
    original = RelationSet.objects.get()
    researcher_client.post(f"/relations/sets/{original.pk}/duplicate/", {"name": "copy"})
    researcher_client.post(f"/relations/sets/{original.pk}/delete/")

    assert list(RelationSet.objects.values_list("name", "created_by")) == [("copy", researcher.pk)]


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_a_harvest_and_a_launch_of_somebody_else_go_on(owner, researcher_client, enqueued, verb):
    status = Job.Status.QUEUED if verb == "cancel" else Job.Status.FAILED
    launch = Launch.objects.create(created_by=owner)
    job = make_harvest_job(status, created_by=owner, launch=launch)
    paths = [f"/harvests/{job.pk}/{verb}/", f"/harvests/launches/{launch.pk}/{verb.replace('retry', 'retry-failed')}/"]

    pages = [researcher_client.post(path, follow=True).text for path in paths]

    assert all("Only who made" in page for page in pages)
    assert HarvestJob.objects.get().status == status
    client_of(owner).post(paths[0])
    assert HarvestJob.objects.get().status != status


def test_a_tuple_that_others_harvested_is_not_hidden(owner, researcher_client):
    make_harvest([("dam", "flood")], created_by=owner)
    path = KnowledgeTuple.objects.get().get_absolute_url()

    page = researcher_client.post(path, {"decision": "hide", "reason": "I do not like it"}).text

    assert "Only who made" in page
    assert KnowledgeTuple.objects.get().curation is None
    client_of(owner).post(path, {"decision": "hide", "reason": "private"})
    assert KnowledgeTuple.objects.get().curation == "hidden"


def test_the_list_of_sensitive_words_is_changed_by_superusers_and_the_change_is_recorded(
    researcher, researcher_client, enqueued
):
    SensitiveWord.objects.all().delete()
    SensitiveWord.objects.create(word="poison")

    page = researcher_client.post("/knowledge/sensitive-words/", {"words": "tulip"}).text
    assert "Only a superuser" in page
    researcher.is_superuser = True
    researcher.save()
    researcher_client.post("/knowledge/sensitive-words/", {"words": "tulip"})

    assert list(SensitiveWord.objects.values_list("word", flat=True)) == ["tulip"]
    job = Job.objects.get()
    assert (job.created_by, job.payload) == (researcher, {"added": ["tulip"], "removed": ["poison"]})
