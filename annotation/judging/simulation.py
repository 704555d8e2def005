"""Simulated judgments for demonstrations and tests."""

from collections.abc import Callable
from random import Random
from uuid import NAMESPACE_OID, UUID, uuid5

from django.db import transaction
from django.utils import timezone

from annotation.judging.assignment import next_batch, start_position
from annotation.judging.judgments import Answer, submit_judgment
from annotation.models import Annotator, Label, Round
from kgharvest.errors import DomainError
from kgharvest.models import KnowledgeTuple

UNJUDGEABLE_SHARE = 0.03

Truth = Callable[[KnowledgeTuple], float]  # probability in [0, 1] that a person labels the tuple True


def fill_with_simulated_judgments(round: Round, truth: Truth, rng: Random, n_annotators: int = 3) -> None:
    """Complete the round with `n_annotators` simulated annotators (at least k), using the same services as people.

    Raises NotSimulated unless the round was opened with source "simulated", which pages and reports show.
    """
    if round.source != Round.Source.SIMULATED:
        raise DomainError("NotSimulated", f'Round {round.name} is for people. Open a round with "source": "simulated".')
    tasks = round.tasks.select_related("knowledge_tuple__relation")
    chances = {task.pk: truth(task.knowledge_tuple) for task in tasks}
    with transaction.atomic():
        annotators = []
        for number in range(1, n_annotators + 1):
            code = f"simulated-{number}"
            start = start_position(round, code)
            annotators.append(round.annotators.create(code=code, next_position=start, trained_at=timezone.now()))
        # UUIDs must be unique in the installation, even if two rounds are simulated with the same seed.
        salt = uuid5(NAMESPACE_OID, f"simulation of round {round.pk}").int
        while sum(_judge_batch(annotator, chances, rng, salt) for annotator in annotators):
            pass


def _judge_batch(annotator: Annotator, chances: dict[int, float], rng: Random, salt: int) -> int:
    now = timezone.now()
    batch = next_batch(annotator, now)
    for task in batch:
        if rng.random() < UNJUDGEABLE_SHARE:
            label = Label.UNJUDGEABLE
        else:
            label = Label.TRUE if rng.random() < chances[task.pk] else Label.FALSE
        uuid = UUID(int=rng.getrandbits(128) ^ salt, version=4)
        parts = task.wrong_parts if label == Label.FALSE else [""]
        wrong_part = parts[0] if len(parts) == 1 else rng.choice(parts)  # rounds that do not ask need no random number
        submit_judgment(annotator, Answer(task.pk, label, uuid, wrong_part=wrong_part), now)
    return len(batch)
