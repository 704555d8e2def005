"""The home page and the assignment of statements agree on whether an annotator has statements left."""

from random import Random

import pytest
from django.utils import timezone

from annotation.judging.assignment import next_batch, release_batch
from annotation.judging.judgments import n_skipped, skip_task, with_statements_left
from annotation.judging.reservations import release_reservation, reserve_statements
from annotation.models import Annotator
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "spec", [{"judgments_per_task": 1}, {"max_per_annotator": 2}, {"gold_share": 0.2}, {"reserved": 2}]
)
def test_statements_are_left_while_the_next_batch_or_skipped_statements_remain(spec):
    spec = dict(spec)
    random, seen = Random(4), set()
    n_reserved = spec.pop("reserved", 0)
    round = factories.make_round(4, **{"judgments_per_task": 2, "batch_size": 1} | {**spec, "gold_share": 0})
    if "gold_share" in spec:
        factories.make_gold(round, [round.tasks.get(position=1)], "true")
        type(round).objects.filter(pk=round.pk).update(gold_share=0.2)
    pks = [annotator.pk for annotator in factories.make_annotators(round, 3)]
    if n_reserved:
        codes = list(round.annotators.values_list("code", flat=True)[:n_reserved])
        reserve_statements(round, codes, pk__in=round.tasks.values_list("pk", flat=True)[:n_reserved])
    for _ in range(60):
        annotator = Annotator.objects.select_related("round").get(pk=random.choice(pks))
        left = bool(with_statements_left([annotator]))
        batch = next_batch(annotator, timezone.now())
        annotator.refresh_from_db()
        assert left == (not annotator.has_judged_share and bool(batch or n_skipped(annotator)))
        seen.add(left)
        if batch and random.random() < 0.75:
            factories.judge(annotator, batch[0])
        elif batch and random.random() < 0.5:
            skip_task(annotator, batch[0].pk)
        else:
            release_batch(annotator)
        if n_reserved and random.random() < 0.1:
            for reservation in round.reservations.filter(released_at=None):
                release_reservation(reservation)
    assert seen == {True, False}
