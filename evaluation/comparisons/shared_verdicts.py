"""Verdicts of two rounds on the tuples that both judged, with McNemar's test."""

from __future__ import annotations

from typing import NamedTuple

from django.db.models import Count

from annotation.judging.verdicts import Verdict
from annotation.models import JudgmentTask, Round
from kgharvest.pages.number_format import p_value
from kgharvest.statistics.paired_tests import mcnemar_p
from kgharvest.statistics.rates import SIGNIFICANCE


class SharedVerdicts(NamedTuple):
    """Tuples that both rounds gave a verdict, by who accepted them, and McNemar's exact p; None where all agree."""

    both: int
    only_a: int
    only_b: int
    neither: int
    p: float | None

    @property
    def n(self) -> int:
        return self.both + self.only_a + self.only_b + self.neither

    def in_words(self, a: str, b: str) -> str:
        """Return the result as one sentence about rounds of these names."""
        start = f"{self.n:,} tuples have a verdict in both rounds"
        if self.p is None:
            return f"{start}, and the rounds accept the same ones."
        p = p_value(self.p)
        test = f"McNemar's exact p {p if p.startswith('<') else f'= {p}'}"
        counts = f"{a} alone accepts {self.only_a:,}, {b} alone {self.only_b:,}; {test}"
        if self.p >= SIGNIFICANCE:
            return f"{start}: {counts}: not distinguishable."
        return f"{start}: {counts}: {a if self.only_a > self.only_b else b} accepts more."


def shared_verdicts(a: Round, b: Round) -> SharedVerdicts | None:
    """Compare the verdicts as they are now; None where the rounds share no judged tuple, or are one."""
    if a == b:
        return None
    tasks = JudgmentTask.objects.without_gold().complete()
    pairs = (
        tasks.filter(round=a, knowledge_tuple__judgment_tasks__in=tasks.filter(round=b))
        .order_by()
        .values_list("verdict", "knowledge_tuple__judgment_tasks__verdict")
        .annotate(n=Count("pk"))
    )
    counts: dict[tuple[bool, bool], int] = {}
    for verdict_a, verdict_b, n in pairs:
        accepted = verdict_a == Verdict.ACCEPTED, verdict_b == Verdict.ACCEPTED
        counts[accepted] = counts.get(accepted, 0) + n
    if not counts:
        return None
    both, only_a, only_b, neither = (
        counts.get(key, 0) for key in ((True, True), (True, False), (False, True), (False, False))
    )
    return SharedVerdicts(both, only_a, only_b, neither, mcnemar_p(only_a, only_b))
