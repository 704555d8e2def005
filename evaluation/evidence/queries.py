"""Gather what a report rests on from the database, as arrays: a few queries however large the round is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from math import log
from typing import Any

import numpy as np
from django.db.models import Case, Count, F, FloatField, OuterRef, Q, QuerySet, Subquery, When
from numpy.typing import NDArray

from annotation.judging.third_judgments import third_annotators
from annotation.models import Adjudication, Annotator, Draw, Judgment, Round, Stratum
from evaluation.evidence.arrays import BASES, Draws, Evidence, Judgments, SampledHarvest, StratumKey
from kgharvest.models import HarvestedTuple, HarvestJob, LanguageModel, Relation
from kgharvest.names import shortest_names
from kgharvest.statistics.arrays import INCOMPLETE, LABELS, VERDICTS, Codes, Floats
from kgharvest.statistics.sides import CellKey, Side

PAPER_ORDER = ["human", "autoprompt", "top1", "multi"]  # of the settings in Table 5
ROWS_AT_ONCE = 50_000

LABEL_CODES = {label: code for code, label in enumerate(LABELS)}
VERDICT_CODES = {verdict: code for code, verdict in enumerate(VERDICTS)} | {"": INCOMPLETE}


def gather_evidence(round: Round) -> Evidence:
    tasks, verdict, wanted = _columns(
        round.tasks.without_gold().order_by("position"), pk=whole, verdict=_verdicts, n_wanted=whole
    )
    gold_tasks, gold_truth = _columns(round.tasks.gold().order_by("position"), pk=whole, gold_label=_labels)
    every_task = np.concatenate([tasks, gold_tasks])
    codes = dict(Annotator.objects.filter(round=round).order_by("code").values_list("pk", "code"))
    counted = Judgment.objects.counted().filter(task__round=round, task__is_gold=False)
    # Gold judgments never count, so all current ones are read, except those of excluded annotators.
    of_gold = Judgment.objects.current().not_withdrawn().filter(task__round=round, task__is_gold=True)
    of_gold = of_gold.exclude(annotator__status=Annotator.Status.EXCLUDED)
    judgments, gold = (_judgments(rows, every_task, whole(list(codes))) for rows in (counted, of_gold))
    judgments, gold, annotators = renumber_annotators(judgments, gold, list(codes.values()))
    number = {code: position for position, code in enumerate(annotators)}
    thirds = {task: number[codes[annotator]] for task, annotator in third_annotators(round).items()}
    demonstrators = LanguageModel.objects.filter(strata__round=round, is_demonstrator=True).distinct()
    cells = cells_with_strata(round)
    stratum_ids = whole([stratum.pk for strata in cells.values() for stratum in strata])
    return Evidence(
        round=round.name,
        source=round.source,
        seed=round.seed,
        judgments_per_task=round.judgments_per_task,
        quorum=round.quorum,
        has_thirds=round.third_only_if_split,
        verdict=verdict,
        adjudicated=_adjudicated(round, tasks),
        third=np.array([thirds.get(task, -1) for task in tasks.tolist()], dtype=np.int64),
        wanted=np.maximum(wanted, round.least_k),
        judgments=judgments,
        cells=list(cells),
        strata=stratum_keys(cells),
        draws=_draws(round, tasks, stratum_ids),
        annotators=annotators,
        gold=gold,
        gold_truth=gold_truth,
        demonstrators=sorted(map(str, demonstrators)),
        harvests=sampled_harvests(round),
    )


# -- columns -----------------------------------------------------------------------------------------------------------


def _columns(rows: QuerySet, **fields: Callable[[Sequence[Any]], NDArray]) -> list[NDArray]:
    """Return the values of each field, made an array by its function; read in pieces, as rows of Python are large."""
    values = rows.values_list(*fields).iterator(ROWS_AT_ONCE)
    pieces = [[to_array([]) for to_array in fields.values()]]
    while piece := list(islice(values, ROWS_AT_ONCE)):
        columns = zip(*piece, strict=True)
        pieces.append([to_array(column) for to_array, column in zip(fields.values(), columns, strict=True)])
    return [np.concatenate(column) for column in zip(*pieces, strict=True)]


def whole(values: Sequence[int]) -> Codes:
    return np.array(values, dtype=np.int64)


def _labels(values: Sequence[str]) -> Codes:
    return np.fromiter(map(LABEL_CODES.__getitem__, values), dtype=np.int64, count=len(values))


def _verdicts(values: Sequence[str]) -> Codes:
    return np.fromiter(map(VERDICT_CODES.__getitem__, values), dtype=np.int64, count=len(values))


def floats(values: Sequence[float | None]) -> Floats:
    return np.array(values, dtype=np.float64)  # None becomes NaN


def _positions(ids: Codes, among: Codes) -> Codes:
    """Return where each id stands in `among`, which holds them all."""
    order = np.argsort(among, kind="stable")
    return order[np.searchsorted(among, ids, sorter=order)]


# -- judgments ---------------------------------------------------------------------------------------------------------


def _judgments(rows: QuerySet, task_ids: Codes, annotator_ids: Codes) -> Judgments:
    tasks, annotators, label, seconds = _columns(
        rows.order_by(), task_id=whole, annotator_id=whole, label=_labels, seconds=floats
    )
    return sorted_judgments(_positions(tasks, task_ids), _positions(annotators, annotator_ids), label, seconds)


def sorted_judgments(task: Codes, annotator: Codes, label: Codes, seconds: Floats) -> Judgments:
    order = np.lexsort((annotator, task))
    return Judgments(*(column[order] for column in (task, annotator, label, seconds)))


def renumber_annotators(
    judgments: Judgments, gold: Judgments, codes: Sequence[str]
) -> tuple[Judgments, Judgments, list[str]]:
    """Number only the annotators who gave a counted judgment; gold of others is left out."""
    present = np.unique(judgments.annotator)
    new_number = np.full(len(codes), -1)
    new_number[present] = np.arange(len(present))
    gold = Judgments(*(column[new_number[gold.annotator] >= 0] for column in gold))
    renumbered = (rows._replace(annotator=new_number[rows.annotator]) for rows in (judgments, gold))
    return *renumbered, [codes[number] for number in present]


def _adjudicated(round: Round, task_ids: Codes) -> Codes:
    """Return the verdict (T,) of the last adjudication of each statement, INCOMPLETE if there is none."""
    adjudications = Adjudication.objects.current().filter(task__round=round, task__is_gold=False)
    tasks, verdicts = _columns(
        adjudications.order_by(),
        task_id=whole,
        label=lambda labels: _verdicts([Adjudication.VERDICTS[label] for label in labels]),
    )
    adjudicated = np.full(len(task_ids), INCOMPLETE)
    adjudicated[_positions(tasks, task_ids)] = verdicts
    return adjudicated


# -- cells and draws ---------------------------------------------------------------------------------------------------


def cells_with_strata(round: Round) -> dict[CellKey, list[Stratum]]:
    """Return the cells in the order of reports, each with its strata from the best ranks on."""
    return cells_of_strata(round.strata.sampled().order_by("rank_from", "pk"))


def cells_of_strata(strata: Iterable[Stratum]) -> dict[CellKey, list[Stratum]]:
    """Return the cells in the order of reports, each with its strata in the order given."""
    strata = list(strata)
    relations = Relation.objects.filter(pk__in={stratum.relation_id for stratum in strata})
    paths = {relation.pk: relation.path for relation in relations.select_related("relation_set")}
    names = shortest_names(paths.values())  # set/name if two sets of one round use the same name
    models = model_names(stratum.language_model_id for stratum in strata)
    cells: defaultdict[CellKey, list[Stratum]] = defaultdict(list)
    for stratum in strata:
        relation = names[paths[stratum.relation_id]]
        key = CellKey(relation, models.get(stratum.language_model_id), stratum.setting or None)
        cells[key].append(stratum)

    def position(cell: tuple[CellKey, list[Stratum]]) -> tuple[str, int, str, str]:
        """Sort settings as in the paper's tables, then the others by name."""
        key = cell[0]
        number = PAPER_ORDER.index(key.setting) if key.setting in PAPER_ORDER else len(PAPER_ORDER)
        return key.model or "", number, key.setting or "", key.relation

    return dict(sorted(cells.items(), key=position))


def stratum_keys(cells: Mapping[CellKey, Sequence[Stratum]]) -> list[StratumKey]:
    """Return the strata of all cells, in their order."""
    numbered = [(number, stratum) for number, strata in enumerate(cells.values()) for stratum in strata]
    return [
        StratumKey(
            number,
            stratum.rank_from,
            stratum.rank_to,
            stratum.population,
            stratum.job_id,
            stratum.judge_label,
            stratum.ranks,
        )
        if stratum.job_id
        else StratumKey(number, None, None, None)
        for number, stratum in numbered
    ]


LOGARITHMS = (HarvestJob.ScoreScale.NATS, HarvestJob.ScoreScale.LOG_SHARE)  # scales that base:k can cut
# Of draws. Where a harvest has no scores, minus the rank stands in their place.
IS_SCORED = ~Q(harvested_tuple__job__score_scale=HarvestJob.ScoreScale.ORDER)
OWN_SCORE = Case(When(IS_SCORED, then=F("harvested_tuple__score")), output_field=FloatField())


def _draws(round: Round, task_ids: Codes, stratum_ids: Codes) -> Draws:
    rows = Draw.objects.filter(stratum__round=round).order_by().annotate(own_score=OWN_SCORE)
    tasks, strata, ranks, score = _columns(
        rows, task_id=whole, stratum_id=whole, harvested_tuple__rank=floats, own_score=floats
    )
    return sorted_draws(
        _positions(tasks, task_ids), _positions(strata, stratum_ids), np.nan_to_num(ranks).astype(np.int64), score
    )


def sorted_draws(task: Codes, stratum: Codes, rank: Codes, score: Floats) -> Draws:
    order = np.lexsort((task, stratum))
    return Draws(*(column[order] for column in (task, stratum, rank, score)))


def model_names(ids: Iterable[int | None]) -> dict[int, str]:
    return {model.pk: str(model) for model in LanguageModel.objects.filter(pk__in=set(ids) - {None})}


def sampled_harvests(round: Round) -> list[SampledHarvest]:
    models = model_names(round.strata.values_list("language_model", flat=True).distinct())
    strata = round.strata.exclude(job=None).order_by("language_model__name", "setting", "relation__name", "rank_to")
    # The last stratum of a job reaches furthest.
    rows = {job: rest for job, *rest in strata.values_list("job", "language_model", "setting", "rank_to")}
    kept = {base: _kept_by_base(rows, base) for base in BASES}
    return [
        SampledHarvest(
            job,
            Side(models.get(model), setting or None),
            rank_to,
            {base: sizes[job] for base, sizes in kept.items() if sizes.get(job, rank_to + 1) <= rank_to},
        )
        for job, (model, setting, rank_to) in rows.items()
    ]


def _kept_by_base(jobs: Iterable[int], base: int) -> dict[int, int]:
    """Return how many tuples base:k keeps of each job that has k of them, and scores that are logarithms."""
    tuples = HarvestedTuple.objects.filter(job__in=jobs, job__score_scale__in=LOGARITHMS)
    kth = HarvestedTuple.objects.filter(job=OuterRef("job"), rank=base).values("score")[:1]
    kept = tuples.annotate(kth=Subquery(kth)).filter(score__gte=F("kth") + log(0.1))
    return dict(kept.order_by().values_list("job").annotate(n=Count("pk")))
