"""The judged KG of a round: the tuples of its harvests with what people decided about them, read in pieces.

A row is a tuple of one harvest. Its verdict is that of the draw that the round made of it for this harvest, so that
the counts of verdicts are those of the report: a tuple that was judged for another harvest only is not judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet

from annotation.models import Draw, Round
from evaluation.reports.drawn_tuples import INCOMPLETE, OUTCOMES, count_outcomes
from kgharvest.entities.tables import EntityIds
from kgharvest.models import HarvestJob, LanguageModel, Relation

NOT_JUDGED = "not_judged"
VERDICTS = (*OUTCOMES, NOT_JUDGED)
ROWS_AT_ONCE = 2000


class Kept(StrEnum):
    """Which tuples a file has, by what people decided. JUDGED: those with a verdict, undecided ones included."""

    ACCEPTED = "accepted"
    JUDGED = "judged"
    ALL = "all"


KEPT_IN_WORDS = {
    Kept.ACCEPTED: "accepted only",
    Kept.JUDGED: "judged: accepted, rejected, undecided",
    Kept.ALL: "all tuples of the harvests",
}


class Source(NamedTuple):
    """Whose tuples rows are: a harvest, or (job None) judgments that were imported without one."""

    relation: Relation
    language_model: LanguageModel | None
    setting: str
    job: HarvestJob | None

    @property
    def model(self) -> str:
        return str(self.language_model) if self.language_model else ""

    @property
    def is_scored(self) -> bool:
        return self.job is not None and self.job.is_scored


class Row(NamedTuple):
    """A tuple of the judged KG.

    number: names the row within its source: the rank, or the draw's id where there is no harvest. entities: as people
    read them. canonical: what makes them the same as others, case-folded. rank, score, mtl: None where there is none.
    verdict: one of VERDICTS. counts: of the labels true, false, unjudgeable. probability: with which the round drew it,
    None where nobody knows. ids: of the entities by the table of labels of the relation's set, None where it has none.
    """

    source: Source
    number: int
    entities: list[str]
    canonical: list[str]
    rank: int | None
    score: float | None
    mtl: float | None
    verdict: str
    counts: tuple[int, int, int]
    probability: float | None
    ids: Sequence[str | None] = ()


class JudgedKG:
    """The judged KG of a round; `rows` reads it anew each time."""

    def __init__(self, round: Round):
        self.round = round

    @cached_property
    def sources(self) -> list[Source]:
        """The harvests in the order of their relations, LMs and settings, then what came without one."""
        strata = self.round.strata.select_related("relation__relation_set", "language_model")
        strata = strata.select_related("job__relation__relation_set", "job__language_model")
        found = {(stratum.job_id or stratum.cell): _source(stratum) for stratum in strata.order_by("pk")}
        return sorted(found.values(), key=_order)

    def outcomes(self) -> Mapping[str, int]:
        """Return how many draws there are of each outcome, as the cells of the report count them."""
        return count_outcomes(self._draws())

    def rows(self, kept: Kept = Kept.ALL) -> Iterator[Row]:
        """Yield the rows, source by source and by rank."""
        for source in self.sources:
            rows = self._draws_of(source, kept)
            if kept == Kept.ALL and source.job:
                rows = self._with_undrawn(source, rows)
            for row, ids in EntityIds(source.relation).beside(rows, attrgetter("canonical")):
                yield row._replace(ids=ids)

    def _draws(self) -> QuerySet[Draw]:
        return Draw.objects.filter(stratum__round=self.round)

    def _draws_of(self, source: Source, kept: Kept) -> Iterator[Row]:
        draws = self._draws().filter(stratum__job=source.job)
        if source.job is None:
            cell = Q(stratum__relation=source.relation, stratum__language_model=source.language_model)
            draws = draws.filter(cell, stratum__setting=source.setting)
        draws = draws.filter(CONDITIONS[kept]).order_by("harvested_tuple__rank", "pk")
        values = draws.values_list("pk", *READ, *HARVESTED, "task__verdict", *COUNTS, PROBABILITY)
        for pk, entities, canonical, rank, score, mtl, verdict, *counts, probability in values.iterator(ROWS_AT_ONCE):
            score = score if source.is_scored else None
            judged = (verdict or INCOMPLETE, tuple(counts), probability)
            yield Row(source, rank or pk, entities, canonical, rank, score, mtl, *judged)

    def _with_undrawn(self, source: Source, draws: Iterable[Row]) -> Iterator[Row]:
        """Merge the draws with the other tuples of the harvest. Hidden ones, and sensitive ones, are left out of these.

        Both come by rank, so that neither is ever held.
        """
        waiting = iter(draws)
        draw = next(waiting, None)
        for row in self._tuples_of(source):
            while draw and (draw.rank or 0) < row.number:
                yield draw
                draw = next(waiting, None)
            if draw and draw.rank == row.number:
                yield draw
                draw = next(waiting, None)
            else:
                yield row
        while draw:
            yield draw
            draw = next(waiting, None)

    def _tuples_of(self, source: Source) -> Iterator[Row]:
        presentable = source.job.tuples.presentable(include_sensitive=self.round.include_sensitive)
        values = presentable.order_by("rank").values_list(
            "rank", "score", "mtl", "surface", "knowledge_tuple__entities", "knowledge_tuple__corrected_entities"
        )
        is_scored, unjudged = source.is_scored, (NOT_JUDGED, (0, 0, 0), None)
        for rank, score, mtl, surface, known, corrected in values.iterator(ROWS_AT_ONCE):
            named = (corrected, [entity.casefold() for entity in corrected]) if corrected else (surface, known)
            yield Row(source, rank, *named, rank, score if is_scored else None, mtl, *unjudged)


def _source(stratum: Any) -> Source:
    return Source(stratum.relation, stratum.language_model, stratum.setting, stratum.job)


def _order(source: Source) -> tuple[str, str, str, int]:
    return source.relation.path, source.model, source.setting, source.job.pk if source.job else 0


READ = ("task__entities", "task__knowledge_tuple__entities")
HARVESTED = ("harvested_tuple__rank", "harvested_tuple__score", "harvested_tuple__mtl")
COUNTS = ("task__n_true", "task__n_false", "task__n_unjudgeable")
PROBABILITY = "inclusion_probability"
CONDITIONS = {Kept.ACCEPTED: Q(task__verdict="accepted"), Kept.JUDGED: ~Q(task__verdict=""), Kept.ALL: Q()}


class Counted:
    """Rows on their way, counted by verdict as they pass. n_left_out: rows that a format has no place for."""

    def __init__(self, rows: Iterable[Row]):
        self._rows = rows
        self.by_verdict = dict.fromkeys(VERDICTS, 0)
        self.n_left_out = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            self.by_verdict[row.verdict] += 1
            yield row

    def only(self, has_place: Callable[[Row], bool]) -> Iterator[Row]:
        """Yield and count the rows that have a place in a format, and count the others as left out."""
        for row in self._rows:
            if has_place(row):
                self.by_verdict[row.verdict] += 1
                yield row
            else:
                self.n_left_out += 1
