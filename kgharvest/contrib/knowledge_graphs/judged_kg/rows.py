"""Judged KG of a round: the tuples of its harvests with their verdicts, read in batches.

A row represents a tuple of one harvest. The row's verdict comes from the tuple's draw for this harvest, so that the
counts of verdicts match the report. If the tuple was judged only for another harvest, the row has no verdict.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import merge
from operator import attrgetter
from typing import NamedTuple

from django.db.models import Q, TextChoices

from annotation.models import Draw, Round
from evaluation.reports.drawn_tuples import INCOMPLETE, OUTCOMES, count_outcomes
from kgharvest.entities.tables import EntityIds
from kgharvest.models import HarvestJob, LanguageModel, Relation

NOT_JUDGED = "not_judged"
VERDICTS = (*OUTCOMES, NOT_JUDGED)
ROWS_AT_ONCE = 2000


class Selection(TextChoices):
    """Which tuples to export. JUDGED selects tuples with a verdict, including the verdict undecided."""

    ACCEPTED = "accepted", "accepted tuples"
    JUDGED = "judged", "judged tuples (accepted, rejected, undecided)"
    ALL = "all", "all tuples of the harvests"


class Source(NamedTuple):
    """Origin of rows: a harvest, or judgments imported without a harvest (job is None)."""

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
    """A row of the judged KG.

    number: identifies the row within its source. It is the rank or, without a harvest, the id of the draw. entities: as
    shown to annotators. canonical: case-folded canonical entities. verdict: one of VERDICTS. counts: numbers of true,
    false, and unjudgeable judgments. probability: inclusion probability, None if unknown. ids: entity ids from the
    set's entity table, None for entities without an id.
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
    """Judged KG of a round. Each call of `rows` reads the database again."""

    def __init__(self, round: Round):
        self.round = round

    @cached_property
    def sources(self) -> list[Source]:
        """The sources, sorted by relation, LM, and setting."""
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
        """Return the number of draws by outcome. The counts match those in the cells of the report."""
        return count_outcomes(Draw.objects.filter(stratum__round=self.round))

    def rows(self, selection: Selection = Selection.ALL) -> Iterator[Row]:
        """Yield the rows by source and rank."""
        for source in self.sources:
            rows = self._draws_of(source, selection)
            if selection == Selection.ALL and source.job:
                rows = self._with_undrawn(source, rows)
            for row, ids in EntityIds(source.relation).with_ids(rows, attrgetter("canonical")):
                yield row._replace(ids=ids)

    def _draws_of(self, source: Source, selection: Selection) -> Iterator[Row]:
        draws = Draw.objects.filter(stratum__round=self.round, stratum__job=source.job)
        if source.job is None:
            cell = Q(stratum__relation=source.relation, stratum__language_model=source.language_model)
            draws = draws.filter(cell, stratum__setting=source.setting)
        draws = draws.filter(CONDITIONS[selection]).order_by("harvested_tuple__rank", "pk")
        values = draws.values_list("pk", *ENTITIES, *HARVESTED, "task__verdict", *COUNTS, PROBABILITY)
        for pk, entities, canonical, rank, score, mtl, verdict, *counts, probability in values.iterator(ROWS_AT_ONCE):
            score = score if source.is_scored else None
            judged = (verdict or INCOMPLETE, tuple(counts), probability)
            yield Row(source, rank or pk, entities, canonical, rank, score, mtl, *judged)

    def _with_undrawn(self, source: Source, draws: Iterable[Row]) -> Iterator[Row]:
        """Merge the draws with the tuples of the harvest that were not drawn, except hidden and sensitive tuples.

        Draws and tuples are sorted by rank, so that rows can be streamed.
        """
        drawn_rank = None
        for row in merge(
            draws, self._tuples_of(source), key=lambda row: row.rank or 0
        ):  # a draw sorts before its tuple
            if row.verdict != NOT_JUDGED:
                drawn_rank = row.rank or drawn_rank  # a draw without a rank does not change it
            if row.verdict != NOT_JUDGED or row.rank != drawn_rank:
                yield row

    def _tuples_of(self, source: Source) -> Iterator[Row]:
        presentable = source.job.tuples.presentable(include_sensitive=self.round.include_sensitive)
        values = presentable.order_by("rank").values_list(
            "rank", "score", "mtl", "surface", "knowledge_tuple__entities", "knowledge_tuple__corrected_entities"
        )
        is_scored, unjudged = source.is_scored, (NOT_JUDGED, (0, 0, 0), None)
        for rank, score, mtl, surface, canonical, corrected in values.iterator(ROWS_AT_ONCE):
            entities = (corrected, [entity.casefold() for entity in corrected]) if corrected else (surface, canonical)
            yield Row(source, rank, *entities, rank, score if is_scored else None, mtl, *unjudged)


ENTITIES = ("task__entities", "task__knowledge_tuple__entities")
HARVESTED = ("harvested_tuple__rank", "harvested_tuple__score", "harvested_tuple__mtl")
COUNTS = ("task__n_true", "task__n_false", "task__n_unjudgeable")
PROBABILITY = "inclusion_probability"
CONDITIONS = {
    Selection.ACCEPTED: Q(task__verdict="accepted"),
    Selection.JUDGED: ~Q(task__verdict=""),
    Selection.ALL: Q(),
}


class Counted:
    """Rows that are counted by verdict during iteration.

    n_left_out: number of rows that the format cannot represent.
    """

    def __init__(self, rows: Iterable[Row]):
        self._rows = rows
        self.by_verdict = dict.fromkeys(VERDICTS, 0)
        self.n_left_out = 0

    def __iter__(self) -> Iterator[Row]:
        return self.only(lambda row: True)

    def only(self, is_representable: Callable[[Row], bool]) -> Iterator[Row]:
        """Yield and count the rows that the format can represent. Other rows are counted in `n_left_out`."""
        for row in self._rows:
            if is_representable(row):
                self.by_verdict[row.verdict] += 1
                yield row
            else:
                self.n_left_out += 1
