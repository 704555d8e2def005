"""Predictions for the LM-KBC challenge from harvests with heads, and score thresholds learned from judged rounds."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from annotation.judging.verdicts import Verdict
from annotation.models import Draw, Round
from kgharvest.contrib.knowledge_graphs.lm_kbc.challenge_files import Question
from kgharvest.contrib.knowledge_graphs.models import ScoreThreshold
from kgharvest.engine.entities import entity_of
from kgharvest.engine.filters import is_number
from kgharvest.entities.tables import EntityIds
from kgharvest.errors import DomainError
from kgharvest.models import HarvestJob, LanguageModel, Project, Relation
from kgharvest.statistics.set_scores import best_threshold


def learn_thresholds(round: Round) -> list[ScoreThreshold]:
    """Store the threshold with the largest F1 for each cell of the round. Replaces earlier ones from the same round.

    Uses accepted and rejected tuples. Skips cells without accepted tuples or without scores. Raises DomainError
    NotJudged if no cell has a threshold.
    """
    cell_fields = ("relation", "language_model", "setting")
    draws = Draw.objects.filter(stratum__round=round, task__verdict__in=[Verdict.ACCEPTED, Verdict.REJECTED])
    scored = draws.filter(harvested_tuple__isnull=False).exclude(harvested_tuple__job__score_scale="order")
    judged = defaultdict(list)
    numbers = ("harvested_tuple__score", "task__verdict", "inclusion_probability")
    for *cell, score, verdict, probability in scored.values_list(*(f"stratum__{f}" for f in cell_fields), *numbers):
        judged[tuple(cell)].append((score, verdict == Verdict.ACCEPTED, 1 / (probability or 1)))
    thresholds = []
    for (relation, language_model, setting), rows in judged.items():
        scores, is_true, weights = (np.array(column) for column in zip(*rows, strict=True))
        if best := best_threshold(scores, is_true, weights):
            cell = {"relation_id": relation, "language_model_id": language_model, "setting": setting}
            stored, _ = ScoreThreshold.objects.update_or_create(round=round, **cell, defaults=best._asdict())
            thresholds.append(stored)
    if not thresholds:
        raise DomainError("NotJudged", f"Round {round.name} has no accepted tuple with a score. Judge tuples first.")
    return thresholds


class Predicted(NamedTuple):
    """Objects of a question, best first. ids: None if the relation has no table of ids."""

    question: Question
    objects: list[str]
    ids: list[str] | None


class Predictor:
    """Predictions of one relation from the newest finished harvests of an LM that complete the subjects.

    threshold: the newest threshold learned for the cell, or None. min_score: used without a threshold.
    """

    def __init__(
        self, relation: Relation, language_model: LanguageModel, setting: str, project: Project, min_score: float | None
    ):
        self.relation = relation
        cell = {"relation": relation, "language_model": language_model, "setting": setting}
        thresholds = ScoreThreshold.objects.filter(**cell, round__project=project)
        self.threshold = thresholds.order_by("-round", "-pk").first()
        self.min_score = self.threshold.score if self.threshold else min_score
        self._ids = EntityIds(relation)
        jobs = HarvestJob.objects.succeeded().filter(**cell, project=project).order_by("-pk")
        self._jobs = [job for job in jobs if job.payload.get("spec", {}).get("params", {}).get("heads")]

    def predict(self, questions: Sequence[Question]) -> Iterator[Predicted]:
        """Yield the objects of each question. Raises DomainError NotHarvested if no harvest has the subject."""
        remaining = {entity_of(question.subject).folded: question for question in questions}
        answers: dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
        for job in self._jobs:
            heads = {entity_of(head).folded for head in job.payload["spec"]["params"]["heads"]} & remaining.keys()
            answers |= {head: [] for head in heads}
            tuples = job.tuples.presentable().select_related("knowledge_tuple").order_by("rank") if heads else ()
            for row in tuples:
                head = entity_of(row.surface[0]).folded
                if head in heads and (self.min_score is None or row.score >= self.min_score):
                    answers[head].append((row.knowledge_tuple.entities, row.surface))
            remaining = {head: question for head, question in remaining.items() if head not in heads}
        if remaining:
            subject = next(iter(remaining.values())).subject
            raise DomainError(
                "NotHarvested",
                f"{len(remaining):,} subjects of {self.relation.name} are in no finished harvest of this LM and "
                f"setting, for example {subject!r}. Write them with lm_kbc subjects, then run harvest --heads.",
            )
        for question in questions:
            tails = answers[entity_of(question.subject).folded]
            objects = [_as_written(surface[-1]) for _, surface in tails]
            ids = [row[-1] or "" for row in self._ids.of([entities for entities, _ in tails])]
            yield Predicted(question, objects, ids if self._ids.has_any else None)


def _as_written(surface: str) -> str:
    """Return the object as LM-KBC writes it. LMs can separate the tokens of a number by spaces."""
    return surface.replace(" ", "").replace(",", "") if is_number(entity_of(surface).words) else surface
