"""Freezing and judging at the same moment: one of them is first, and both know which."""

import pytest
from django.utils import timezone

from annotation.rounds.services import open_draft
from kgharvest.contrib.publishing.models import Preregistration
from kgharvest.errors import DomainError
from tests.factories import judge, make_annotators, next_batch
from tests.kgharvest.contrib.publishing.preregistration.planning import freeze, make_draft
from tests.postgres import at_once, on_postgresql, run_on_postgresql

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]


def frozen_or_refused(round):
    try:
        return freeze(round).version
    except DomainError as refusal:
        if refusal.code != "TooLate":
            raise
        return None


def test_nothing_is_frozen_after_a_judgment_at_the_same_moment():
    for number in range(3):
        round = open_draft(make_draft(name=f"study-{number}"))
        annotators = make_annotators(round, 3)
        tasks = [next_batch(annotator, timezone.now())[0] for annotator in annotators]

        def judged(annotator, task):
            judge(annotator, task)
            return Preregistration.objects.filter(round=task.round_id).exists()

        version, *was_frozen = at_once(
            lambda round=round: frozen_or_refused(round),
            *[lambda a=annotator, t=task: judged(a, t) for annotator, task in zip(annotators, tasks, strict=True)],
        )

        # Frozen: before any judgment was stored, so that each of those who judged finds it. Refused: nobody ever does.
        assert was_frozen == [version is not None] * 3


def test_versions_frozen_at_once_have_numbers_of_their_own():
    draft = make_draft()

    versions = at_once(*[lambda: freeze(draft).version] * 4)

    assert sorted(versions) == [1, 2, 3, 4]


@on_postgresql
def test_all_of_this_holds_on_postgresql():
    run = run_on_postgresql(__file__)

    assert run.returncode == 0, run.stdout
