"""Preregistrations: frozen content, deadline, and immutability."""

import hashlib
import json

import pytest
from django.utils import timezone

from annotation.rounds.services import close_round, delete_draft, edit_draft, open_draft
from kgharvest.accounts.projects import default_project
from kgharvest.audit.tables import canonical_json
from kgharvest.audit.verification import Verification
from kgharvest.contrib.publishing.models import Preregistration
from kgharvest.contrib.publishing.preregistration.plan import PlanSerializer
from kgharvest.contrib.publishing.preregistration.services import freeze_preregistration
from kgharvest.events.models import Event
from kgharvest.models import Role
from tests.factories import judge, make_annotators, make_member, next_batch
from tests.kgharvest.contrib.publishing.preregistration.planning import PLAN, SIDES, freeze, make_draft, planned
from tests.refusals import refused

pytestmark = pytest.mark.django_db

NOW = timezone.now()


def test_hash_matches_the_canonical_document():
    frozen = freeze(make_draft())

    text = canonical_json(frozen.document)

    assert frozen.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert json.loads(text) == Preregistration.objects.get().document


def test_audit_log_records_the_hash():
    frozen = freeze(make_draft())

    entry = Event.objects.get(action="preregistration.frozen")

    assert entry.known_facts["sha256"] == frozen.sha256
    assert f"preregistration {frozen.pk} " in entry.row_hashes
    assert list(Verification()) == []


def test_document_describes_the_round():
    document = freeze(make_draft(judgments_per_task=5, seed=7, instructions="Judge.")).document

    assert document["state"]["options"]["judgments_per_task"] == 5
    assert document["state"]["options"]["seed"] == 7
    assert document["state"]["instructions"]["round_sha256"] == hashlib.sha256(b"Judge.").hexdigest()
    assert document["state"]["statements"]["n"] == 12
    assert {cell["sample_size"] for cell in document["state"]["cells"].values()} == {3}
    assert document["written_by"] == "operator"


def test_draft_and_opened_round_have_the_same_state():
    draft = make_draft(limits={"longest_run": 9}, closes_when="date", closes_at="2030-01-31T18:00+01:00")
    first = freeze(draft)
    round = open_draft(draft)

    second = freeze(round)

    assert second.document["state"] == first.document["state"]
    assert (first.version, second.version) == (1, 2)


def test_all_versions_are_stored_newest_first():
    draft = make_draft()

    versions = [freeze(draft), freeze(draft)]

    assert list(draft.preregistrations.values_list("version", flat=True)) == [2, 1]
    assert versions[0].sha256 != versions[1].sha256


def test_comparison_of_a_hypothesis_is_planned_once():
    plan = planned(hypotheses=[{**SIDES, "expects": "first"}], comparisons=[SIDES])

    frozen = freeze(make_draft(), plan)

    assert frozen.document["plan"]["comparisons"] == [SIDES]
    assert frozen.document["plan"]["hypotheses"][0]["words"] == "lm · multi is more accurate than lm · human."


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({"model": "lm", "setting": "top1"}, "do not compare"),
        ({"model": "other", "setting": "human"}, "There is no LM|no LM"),
        ({"model": "lm", "setting": "multi"}, "do not compare"),
    ],
)
def test_unsupported_comparisons_are_rejected(second, reason):
    with refused("BadPlan", match=reason):
        freeze(make_draft(), planned(comparisons=[{**SIDES, "second": second}]))
    assert not Preregistration.objects.exists()


@pytest.mark.parametrize(
    "hypothesis",
    [
        {**SIDES, "expects": "alike"},
        {**SIDES, "expects": "first", "margin": 5},
        {**SIDES, "expects": "alike", "margin": 1e999},
        {**SIDES, "expects": "maybe"},
        {**SIDES, "expects": "first", "colour": "red"},
    ],
)
def test_invalid_hypothesis_is_rejected(hypothesis):
    assert not PlanSerializer(data=PLAN | {"hypotheses": [hypothesis]}).is_valid()


def test_line_endings_are_normalized():
    assert planned(analysis="one\r\ntwo")["analysis"] == "one\ntwo"


# Deadline


def test_preregistration_is_rejected_after_the_first_judgment():
    round = open_draft(make_draft())
    [annotator] = make_annotators(round, 1)
    tasks = next_batch(annotator, NOW)
    freeze(round)

    judge(annotator, tasks[0])

    with refused("TooLate", match="before its first judgment"):
        freeze(round)
    assert Preregistration.objects.count() == 1


def test_preregistration_of_a_closed_round_is_rejected():
    round = open_draft(make_draft())
    close_round(round)

    with refused("TooLate", match="closed"):
        freeze(round)


def test_editing_a_draft_keeps_the_frozen_document():
    draft = make_draft(seed=1)
    before = freeze(draft).document

    edit_draft(draft, draft.spec | {"seed": 2})

    assert Preregistration.objects.get().document == before


# Immutability


def test_preregistration_cannot_be_changed_or_deleted():
    frozen = freeze(make_draft())

    for act in (
        frozen.save,
        frozen.delete,
        Preregistration.objects.all().delete,
        lambda: Preregistration.objects.update(sha256="0"),
    ):
        with refused("Frozen"):
            act()
    assert Preregistration.objects.get().sha256 == frozen.sha256


def test_verification_finds_altered_preregistration():
    frozen = freeze(make_draft())
    Preregistration._base_manager.filter(pk=frozen.pk).update(document=frozen.document | {"plan": {}})

    [error] = list(Verification())

    assert error.startswith(f"The preregistration {frozen.pk} was altered after ")


def test_deleting_a_draft_deletes_and_logs_its_preregistration():
    draft = make_draft()
    sha256 = freeze(draft).sha256

    delete_draft(draft)

    assert not Preregistration.objects.exists()
    assert Event.objects.get(action="preregistration.deleted").known_facts["sha256"] == sha256
    assert list(Verification()) == []


def test_verification_finds_deleted_preregistration():
    frozen = freeze(make_draft())
    Preregistration._base_manager.filter(pk=frozen.pk).delete()

    assert any(f"The preregistration {frozen.pk} was deleted" in error for error in Verification())


def test_author_is_stored_as_a_role():
    draft = make_draft()
    person = make_member(Role.RESEARCHER, default_project(), "Ada Lovelace")

    frozen = freeze_preregistration(draft, planned(), NOW, person)

    assert frozen.document["written_by"] == "researcher"
    assert "Ada" not in json.dumps(frozen.document)
