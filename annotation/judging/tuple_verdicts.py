"""What rounds add to the pages of the knowledge base."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from annotation.judging.verdicts import Verdict
from annotation.models import JudgmentTask, Round


class JudgedTuples:
    """The tuples judged in rounds that a user may see. Implements kgharvest.knowledge.verdicts.TupleVerdicts."""

    choices = [(verdict.value, verdict.value) for verdict in Verdict]

    def __init__(self, user) -> None:
        self._tasks = JudgmentTask.objects.without_gold().filter(round__in=Round.objects.visible_to(user))

    def with_verdict(self, verdict: str):
        return self._tasks.filter(verdict=verdict)

    def of(self, tuple_ids: Iterable[int]) -> dict[int, list[JudgmentTask]]:
        tasks: dict[int, list[JudgmentTask]] = defaultdict(list)
        for task in self._tasks.filter(knowledge_tuple__in=tuple_ids).select_related("round").order_by("pk"):
            tasks[task.knowledge_tuple_id].append(task)
        return dict(tasks)
