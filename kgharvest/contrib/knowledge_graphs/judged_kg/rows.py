"""The judged KG of a round: the tuples of its harvests with their verdicts, read in batches.

A row is a tuple of one harvest. Its verdict comes from the tuple's draw for this harvest, so verdict counts equal those
of the report. A tuple that was judged only for another harvest is not judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from django.db.models import Q, QuerySet

from annotation.models import Draw, Round
from evaluation.reports.drawn_tuples import INCOMPLETE, OUTCOMES, count_outcomes
from kgharvest.entities.tables import EntityIds
from kgharvest.models import HarvestJob, LanguageModel, Relation

NOT_JUDGED = "not_judged"
VERDICTS = (*OUTCOMES, NOT_JUDGED)
ROWS_AT_ONCE = 2000


class Kept(StrEnum):
    """Tuples to export. JUDGED: tuples with a verdict, including undecided ones."""

    ACCEPTED = "accepted"
    JUDGED = "judged"
    ALL = "all"


KEPT_IN_WORDS = {
    Kept.ACCEPTED: "accepted only",
    Kept.JUDGED: "judged: accepted, rejected, undecided",
    Kept.ALL: "all tuples of the harvests",
}


class Source(NamedTuple):
    """Origin of rows: a harvest, or judgments that were imported without a harvest (job None)."""

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

    number: identifies the row within its source: the rank, or the draw's id if there is no harvest. entities: as shown
    to annotators. canonical: case-folded canonical entities. verdict: one of VERDICTS. counts: judgments true, false,
    unjudgeable. probability: inclusion probability, None if unknown. ids: of the entities, from the set's table of
    labels; None for entities without one.
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
    """The judged KG of a round. Each call of `rows` reads the database again."""

    def __init__(self, round: Round):
        self.round = round

    @cached_property
    def sources(self) -> list[Source]:
        """The sources, sorted by relation, LM and setting."""
        strata = self.round.strata.select_related("relation__relation_set", "language_model")
        strata = strata.select_related("job__relation__relation_set", "job__language_model")
        sources = {
            (stratum.job_id or stratum.cell): Source(
                stratum.relation, stratum.language_model, stratum.setting, stratum.job
            )
            for stratum in strata.order_by("pk")
        }
        return sorted(
            sources.values(),
            key=lambda source: (source.relation.path, source.model, source.setting, source.job.pk if source.job else 0),
        )

    def outcomes(self) -> Mapping[str, int]:
        """Return the number of draws by outcome, counted as in the cells of the report."""
        return count_outcomes(self._draws())

    def rows(self, kept: Kept = Kept.ALL) -> Iterator[Row]:
        """Yield the rows by source and rank."""
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
        """Merge the draws with the harvest's undrawn tuples, except hidden and sensitive ones.

        Both are sorted by rank, so neither is held in memory.
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


READ = ("task__entities", "task__knowledge_tuple__entities")
HARVESTED = ("harvested_tuple__rank", "harvested_tuple__score", "harvested_tuple__mtl")
COUNTS = ("task__n_true", "task__n_false", "task__n_unjudgeable")
PROBABILITY = "inclusion_probability"
CONDITIONS = {Kept.ACCEPTED: Q(task__verdict="accepted"), Kept.JUDGED: ~Q(task__verdict=""), Kept.ALL: Q()}


class Counted:
    """Rows, counted by verdict while they are iterated. n_left_out: rows that the format cannot contain."""

    def __init__(self, rows: Iterable[Row]):
        self._rows = rows
        self.by_verdict = dict.fromkeys(VERDICTS, 0)
        self.n_left_out = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            self.by_verdict[row.verdict] += 1
            yield row

    def only(self, has_place: Callable[[Row], bool]) -> Iterator[Row]:
        """Yield and count the rows that the format can contain; count the others in `n_left_out`."""
        for row in self._rows:
            if has_place(row):
                self.by_verdict[row.verdict] += 1
                yield row
            else:
                self.n_left_out += 1
