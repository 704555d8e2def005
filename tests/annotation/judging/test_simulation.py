from random import Random

import pytest

from annotation.judging.simulation import fill_with_simulated_judgments
from annotation.models import Annotator, Judgment, Round
from tests.factories import make_round
from tests.refusals import refused

pytestmark = pytest.mark.django_db


def test_simulation_completes_the_round():
    round = make_round(15, source="simulated")

    fill_with_simulated_judgments(round, lambda knowledge_tuple: 0.5, Random(0), n_annotators=4)

    assert round.tasks.complete().count() == 15
    assert Annotator.objects.filter(n_judged__gt=0).count() == 4


def test_simulated_verdicts_follow_the_truth():
    round = make_round([("dog", "swim"), ("stone", "swim")], source="simulated", judgments_per_task=9)

    fill_with_simulated_judgments(
        round, lambda knowledge_tuple: float(knowledge_tuple.entities[0] == "dog"), Random(0), n_annotators=9
    )

    assert set(round.tasks.values_list("statement", "verdict")) == {
        ("dog goes with swim.", "accepted"),
        ("stone goes with swim.", "rejected"),
    }


def test_same_seed_simulates_same_judgments():
    judgments = []
    for name in ("one", "two"):
        round = make_round(6, name=name, source="simulated", seed=1)
        fill_with_simulated_judgments(round, lambda knowledge_tuple: 0.5, Random(name == "never"))
        judgments.append(list(round.tasks.order_by("position").values_list("n_true", "n_false", "n_unjudgeable")))
        Judgment.objects.all().delete()  # the second round creates the same UUIDs

    assert judgments[0] == judgments[1]


def test_simulation_rejects_rounds_for_people():
    round = make_round(2)

    with refused("NotSimulated", match="is for people"):
        fill_with_simulated_judgments(round, lambda knowledge_tuple: 1.0, Random(0))
    assert not Judgment.objects.exists()
    assert round.source == Round.Source.PEOPLE
