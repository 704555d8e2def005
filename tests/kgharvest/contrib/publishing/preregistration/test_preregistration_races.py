"""Races between freezing and judging: both see the same order."""

import pytest
from django.utils import timezone

from annotation.rounds.services import open_draft
from kgharvest.contrib.publishing.models import Preregistration
from kgharvest.errors import DomainError
from tests.factories import judge, make_annotators, next_batch
from tests.kgharvest.contrib.publishing.preregistration.planning import freeze, make_draft
from tests.postgres import at_once, on_postgresql, run_on_postgresql

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]


def version_or_none(round):
    try:
        return freeze(round).version
    except DomainError as refusal:
        if refusal.code != "TooLate":
            raise
        return None


def test_freezing_is_rejected_after_a_concurrent_judgment():
    for number in range(3):
        round = open_draft(make_draft(name=f"study-{number}"))
        annotators = make_annotators(round, 3)
        tasks = [next_batch(annotator, timezone.now())[0] for annotator in annotators]

        def judge_task(annotator, task):
            judge(annotator, task)
            return Preregistration.objects.filter(round=task.round_id).exists()

        version, *was_frozen = at_once(
            lambda round=round: version_or_none(round),
            *[lambda a=annotator, t=task: judge_task(a, t) for annotator, task in zip(annotators, tasks, strict=True)],
        )

        # A frozen version precedes all judgments, so every annotator sees it. If freezing was rejected, none does.
        assert was_frozen == [version is not None] * 3


def test_concurrent_versions_have_distinct_numbers():
    draft = make_draft()

    versions = at_once(*[lambda: freeze(draft).version] * 4)

    assert sorted(versions) == [1, 2, 3, 4]


@on_postgresql
def test_module_passes_on_postgresql():
    run = run_on_postgresql(__file__)

    assert run.returncode == 0, run.stdout
