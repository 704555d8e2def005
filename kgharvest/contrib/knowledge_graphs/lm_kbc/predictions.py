"""Predictions for the LM-KBC challenge from harvests with heads, and score thresholds learned from judged rounds."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from annotation.judging.verdicts import Verdict
from annotation.models import Draw, Round
from kgharvest.contrib.knowledge_graphs.lm_kbc.set_scores import best_threshold
from kgharvest.contrib.knowledge_graphs.models import ScoreThreshold
from kgharvest.engine.entities import entity_of
from kgharvest.engine.filters import is_number
from kgharvest.entities.tables import EntityIds
from kgharvest.errors import DomainError
from kgharvest.models import HarvestJob, LanguageModel, Project, Relation

CELL = ("relation_id", "language_model_id", "setting")
DRAWN = (*(f"stratum__{name}" for name in CELL), "harvested_tuple__score", "task__verdict", "inclusion_probability")


def learn_thresholds(round: Round) -> list[ScoreThreshold]:
    """Store the threshold with the largest F1 for every cell of the round. Replaces earlier ones from the same round.

    Uses accepted and rejected tuples. Skips cells without accepted tuples or without scores. Raises NotJudged.
    """
    draws = Draw.objects.filter(stratum__round=round, task__verdict__in=[Verdict.ACCEPTED, Verdict.REJECTED])
    scored = draws.filter(harvested_tuple__isnull=False).exclude(harvested_tuple__job__score_scale="order")
    judged = defaultdict(list)
    for *cell, score, verdict, probability in scored.values_list(*DRAWN):
        judged[tuple(cell)].append((score, verdict == Verdict.ACCEPTED, 1 / probability))
    best = {cell: best_threshold(*map(np.array, zip(*rows, strict=True))) for cell, rows in judged.items()}
    if not any(best.values()):
        raise DomainError("NotJudged", f"Round {round.name} has no accepted tuple with a score. Judge tuples first.")
    return [
        ScoreThreshold.objects.update_or_create(
            round=round, **dict(zip(CELL, cell, strict=True)), defaults=threshold._asdict()
        )[0]
        for cell, threshold in best.items()
        if threshold
    ]


class Predictor:
    """Predictions of a relation from the newest finished harvests of an LM that complete the subjects.

    threshold: the newest threshold learned for the cell, or None. min_score: used without a threshold.
    """

    def __init__(
        self, relation: Relation, language_model: LanguageModel, setting: str, project: Project, min_score: float | None
    ):
        cell = {"relation": relation, "language_model": language_model, "setting": setting}
        self.threshold = ScoreThreshold.objects.filter(**cell, round__project=project).order_by("-round").first()
        self._min_score = self.threshold.score if self.threshold else min_score
        self._relation, self._ids = relation, EntityIds(relation)
        self._jobs = HarvestJob.objects.succeeded().filter(**cell, project=project).order_by("-pk")

    def predict(self, subjects: list[str]) -> Iterator[dict[str, Any]]:
        """Yield ObjectEntities, best first, for every subject, and ObjectEntitiesID if the relation has a table of ids.

        Raises NotHarvested if no harvest has the subject.
        """
        remaining = {entity_of(subject).folded: subject for subject in subjects}
        tails: dict[str, list[Any]] = {}
        for job in self._jobs:
            asked = job.payload.get("spec", {}).get("params", {}).get("heads", ())
            if heads := {entity_of(head).folded for head in asked} & remaining.keys():
                tails |= {head: [] for head in heads}
                for row in job.tuples.presentable().select_related("knowledge_tuple").order_by("rank"):
                    head = entity_of(row.surface[0]).folded
                    if head in heads and (self._min_score is None or row.score >= self._min_score):
                        tails[head].append(row)
            remaining = {head: subject for head, subject in remaining.items() if head not in heads}
        if remaining:
            raise DomainError(
                "NotHarvested",
                f"{len(remaining):,} subjects of {self._relation.name} are in no finished harvest of this LM and "
                f"setting, for example {min(remaining.values())!r}. Use lm_kbc subjects, then harvest --heads.",
            )
        for subject in subjects:
            rows = tails[entity_of(subject).folded]
            prediction: dict[str, Any] = {"ObjectEntities": [_as_written(row.surface[-1]) for row in rows]}
            if self._ids.has_any:
                ids = self._ids.of([row.knowledge_tuple.entities for row in rows])
                prediction["ObjectEntitiesID"] = [of_tuple[-1] or "" for of_tuple in ids]
            yield prediction


def _as_written(surface: str) -> str:
    """Return the object as LM-KBC writes it. LMs can separate the tokens of a number by spaces."""
    return surface.replace(" ", "").replace(",", "") if is_number(entity_of(surface).words) else surface
