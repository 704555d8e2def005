"""Exclusion and reinstatement during concurrent judging, with threads."""

from __future__ import annotations

import random
from uuid import uuid4

import pytest
from django.utils import timezone

from annotation.judging.assignment import next_batch
from annotation.judging.judgments import Answer, submit_judgment
from annotation.models import Annotator, Label, Round
from annotation.quality.exclusion import exclude_annotator, reinstate_annotator
from annotation.rounds.models import RoundNotOpen
from tests.annotation.judging.test_races import at_once
from tests.annotation.quality.test_exclusion import assert_counters_match_judgments
from tests.factories import make_annotators, make_round
from tests.postgres import on_postgresql, run_on_postgresql

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]


def judge_until_done(annotator: Annotator, seed: int) -> None:
    rng = random.Random(seed)
    try:
        while batch := next_batch(annotator, timezone.now()):
            for task in batch:
                submit_judgment(annotator, Answer(task.pk, rng.choice(Label.values), uuid4()), timezone.now())
    except RoundNotOpen:  # the annotator was excluded
        return


def test_exclusion_during_judging_keeps_counts_consistent():
    round = make_round(30, batch_size=3)
    first, *others = make_annotators(round, 5)

    at_once(
        lambda: judge_until_done(first, 0),
        *[lambda annotator=annotator: judge_until_done(annotator, annotator.pk) for annotator in others],
        lambda: exclude_annotator(first, "guesses"),
    )

    assert_counters_match_judgments(round)
    assert set(round.tasks.values_list("n_judgments", "n_leased")) == {(3, 0)}
    assert not first.judgments.filter(is_counted=True).exists()


def test_reinstatement_during_judging_never_exceeds_k():
    round = make_round(30, batch_size=3)
    annotators = make_annotators(round, 5)
    for annotator in annotators[:3]:
        judge_until_done(annotator, annotator.pk)
    exclude_annotator(annotators[0], "guesses")

    at_once(
        lambda: reinstate_annotator(annotators[0]),
        *[lambda annotator=annotator: judge_until_done(annotator, annotator.pk) for annotator in annotators[3:]],
    )

    assert_counters_match_judgments(round)
    assert set(round.tasks.values_list("n_judgments", "n_leased")) == {(3, 0)}


def test_concurrent_exclusions_and_reinstatements_are_stored_once():
    round = make_round(6)
    [annotator] = make_annotators(round, 1)
    judge_until_done(annotator, 0)

    at_once(*[lambda: exclude_annotator(annotator, "guesses")] * 2)
    assert_counters_match_judgments(round)
    at_once(*[lambda: reinstate_annotator(annotator)] * 2)

    assert_counters_match_judgments(Round.objects.get(pk=round.pk))
    kinds = [event.kind for event in round.events.all() if event.kind != "joined"]
    assert kinds == ["reinstated", "excluded", "opened"]
    assert annotator.judgments.filter(is_counted=True).count() == 6


@on_postgresql
def test_exclusion_races_pass_on_postgresql():
    run = run_on_postgresql(__file__)

    assert run.returncode == 0, run.stdout
