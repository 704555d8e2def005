"""Permissions: the table of roles, and its enforcement in services, pages, and the API."""

import pytest
from django.contrib.auth.models import AnonymousUser
from django.test import Client

from kgharvest.access import MAY, Action, NotAllowed, check_may, may, may_anywhere
from kgharvest.accounts.projects import publish_knowledge
from kgharvest.models import HarvestJob, Job, KnowledgeTuple, Launch, Relation, RelationSet, Role, SensitiveWord
from tests.factories import (
    default_project,
    make_harvest,
    make_harvest_job,
    make_launch,
    make_member,
    make_project,
    make_relation,
    make_relation_set,
    make_researcher,
    make_user,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def stranger():
    """Researcher of another project."""
    return make_researcher(project=make_project())


def client_of(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


# Permissions of each role, as documented in docs/projects.md.
PERMISSIONS = {
    Role.VIEWER: "view",
    Role.ADJUDICATOR: "view adjudicate",
    Role.RESEARCHER: "view adjudicate work",
    Role.OWNER: "view adjudicate work manage",
}


def test_roles_have_the_documented_permissions_in_their_project_only():
    own, other = default_project(), make_project()

    for role, actions in PERMISSIONS.items():
        user = make_member(role, own)
        assert {action.value for action in Action if may(user, action, own)} == set(actions.split()), role
        assert not any(may(user, action, other) for action in Action)
        assert [action for action in Action if may(user, action, None)] == [Action.VIEW]
    assert MAY.keys() == set(Action)


def test_superusers_and_the_operator_have_all_permissions_and_outsiders_none():
    project = default_project()
    root, annotator = make_user(is_superuser=True), make_user()
    inactive = make_user(is_superuser=True, is_active=False)
    gone = make_member(Role.OWNER)
    gone.is_active = False

    for action in Action:
        assert [may(user, action, project) for user in (None, root)] == [True, True]
        assert not any(may(user, action, project) for user in (annotator, AnonymousUser(), inactive, gone))
    may_view = [may_anywhere(user, Action.VIEW) for user in (root, annotator, inactive, gone)]
    assert may_view == [True, False, False, False]
    with pytest.raises(NotAllowed, match="the project Default"):
        check_may(annotator, Action.MANAGE, project)


def test_data_of_another_project_are_invisible(stranger):
    harvest, launch, relation_set = make_harvest([("dam", "flood")]), make_launch(), make_relation_set("own")
    shipped = make_relation_set("demo", is_shipped=True)

    for model, lookup in [(HarvestJob, harvest), (Job, harvest), (Launch, launch), (RelationSet, relation_set)]:
        assert not model.objects.visible_to(stranger).filter(pk=lookup.pk).exists(), model
        for user in (make_member(Role.VIEWER), make_user(is_superuser=True), None):
            assert model.objects.visible_to(user).filter(pk=lookup.pk).exists(), model
    assert list(RelationSet.objects.visible_to(stranger)) == [shipped]
    assert not Relation.objects.visible_to(stranger).exists()


def test_relation_set_of_another_project_cannot_be_changed(stranger):
    relation = make_relation("mine", relation_set=make_relation_set("own"))
    before = RelationSet.objects.values().get(), Relation.objects.values().get()
    form = {"name": "other", "set_name": "own", "statement": "<ENT0> is <ENT1>.", "seed_tuples": "a | b\nc | d"}
    viewer, client = client_of(make_member(Role.VIEWER)), client_of(stranger)

    for path, sent in [
        (f"/relations/{relation.pk}/delete/", {}),
        (f"/relations/{relation.pk}/edit/", form),
        (f"/relations/sets/{relation.relation_set_id}/delete/", {}),
        (f"/relations/sets/{relation.relation_set_id}/edit/", {"name": "stolen", "description": ""}),
        (f"/relations/sets/{relation.relation_set_id}/prompts/", {}),
    ]:
        assert (client.post(path, sent).status_code, viewer.post(path, sent).status_code) == (404, 403), path
    assert "is used by another project" in client.post("/relations/new/", form).text
    assert viewer.post("/relations/new/", form).status_code == 403

    assert (RelationSet.objects.values().get(), Relation.objects.values().get()) == before


def test_created_sets_belong_to_the_users_project(researcher, researcher_client):
    form = {"name": "own", "set_name": "mine", "statement": "<ENT0> is <ENT1>.", "seed_tuples": "a | b\nc | d"}

    researcher_client.post("/relations/new/", form)
    original = RelationSet.objects.get()
    researcher_client.post(f"/relations/sets/{original.pk}/duplicate/", {"name": "copy"})
    client_of(make_researcher()).post(f"/relations/sets/{original.pk}/delete/")

    created = RelationSet.objects.values_list("name", "created_by", "project__slug")
    assert list(created) == [("copy", researcher.pk, "default")]


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_harvests_and_launches_of_another_project_cannot_be_changed(stranger, researcher_client, enqueued, verb):
    status = Job.Status.QUEUED if verb == "cancel" else Job.Status.FAILED
    launch = make_launch()
    job = make_harvest_job(status, launch=launch)
    paths = [f"/harvests/{job.pk}/{verb}/", f"/harvests/launches/{launch.pk}/{verb.replace('retry', 'retry-failed')}/"]

    for user, refusal in ((stranger, 404), (make_member(Role.ADJUDICATOR), 403)):
        assert [client_of(user).post(path).status_code for path in paths] == [refusal, refusal]

    assert HarvestJob.objects.get().status == status
    researcher_client.post(paths[0])
    assert HarvestJob.objects.get().status != status


def test_hiding_a_tuple_requires_access_to_all_its_projects(stranger, researcher_client, researcher):
    make_harvest([("dam", "flood")])
    knowledge_tuple = KnowledgeTuple.objects.get()
    make_harvest([("dam", "flood")], relation=knowledge_tuple.relation, project=stranger.memberships.get().project)
    sent = {"decision": "hide", "reason": "private"}

    for client in (researcher_client, client_of(stranger)):
        page = client.get(knowledge_tuple.get_absolute_url()).text
        assert "Save decision" not in page
        assert client.post(knowledge_tuple.get_absolute_url(), sent).status_code == 403
    assert KnowledgeTuple.objects.get().curation is None

    stranger.memberships.get().project.members.create(user=researcher, role=Role.RESEARCHER)
    assert "Save decision" in researcher_client.get(knowledge_tuple.get_absolute_url()).text
    researcher_client.post(knowledge_tuple.get_absolute_url(), sent)
    assert KnowledgeTuple.objects.get().curation == "hidden"


def test_tuple_page_shows_only_harvests_of_the_users_projects(stranger, researcher_client):
    job = make_harvest([("dam", "flood")])
    path = KnowledgeTuple.objects.get().get_absolute_url()

    assert f"/harvests/{job.pk}/" in researcher_client.get(path).text
    assert client_of(stranger).get(path).status_code == 404
    publish_knowledge(job.project, "all")
    page = client_of(stranger).get(path).text
    assert (f"/harvests/{job.pk}/" in page, f"/relations/{job.relation_id}/" in page) == (False, False)
    assert job.relation.path in page


def test_only_superusers_change_sensitive_words_and_changes_are_recorded(researcher, researcher_client, enqueued):
    SensitiveWord.objects.all().delete()
    SensitiveWord.objects.create(word="poison")

    page = researcher_client.post("/knowledge/sensitive-words/", {"words": "tulip"})
    assert (page.status_code, "Only a superuser" in page.text) == (403, True)
    researcher.is_superuser = True
    researcher.save()
    researcher_client.post("/knowledge/sensitive-words/", {"words": "tulip"})

    assert list(SensitiveWord.objects.values_list("word", flat=True)) == ["tulip"]
    job = Job.objects.get()
    assert (job.created_by, job.payload) == (researcher, {"added": ["tulip"], "removed": ["poison"]})
