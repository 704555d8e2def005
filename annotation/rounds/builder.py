"""Sampling: draw each cell's sample from its harvest, freeze the statements, and choose gold."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from django.db.models import Q, QuerySet
from django.db.models.fields.json import KeyTextTransform

from annotation.gold.selection import DrawnTuple, GoldStatement, choose_gold, training_statement
from annotation.judges.allocation import LEAST_PER_STRATUM, JudgeStrata, allocate, judge_strata
from annotation.models import Round, Stratum, TrainingStatement
from annotation.rounds.instructions import freeze_statement, freeze_statements, relation_guide, statement_parts
from annotation.rounds.models import CellId
from annotation.rounds.references import additions_of
from annotation.rounds.serializers import Cell, cells_of
from kgharvest.access import User
from kgharvest.errors import DomainError, NotFound
from kgharvest.harvests.cuts import kept_size, parse_cut
from kgharvest.models import HarvestedTuple, HarvestJob, Job, LanguageModel, Relation
from kgharvest.names import UnresolvedName, resolve_name
from kgharvest.pages.number_format import counted
from kgharvest.relations.names import resolve_relation
from kgharvest.statistics.clusters import draw_clusters, parts_of_clusters

ROWS_AT_ONCE = 500  # maximum ranks per query, because each rank is a query parameter


class Sample(NamedTuple):
    """The unsaved sample of one stratum, ordered by rank.

    clusters: number of the cluster of each tuple, unique in the stratum. n_by_subject: number of tuples in the
    population by subject. Both are empty for simple random samples.
    """

    stratum: Stratum
    tuples: list[DrawnTuple]
    clusters: Sequence[int] = ()
    n_by_subject: Mapping[str, int] = {}


@dataclass(slots=True)
class FrozenTask:
    """An unsaved task with the fields of JudgmentTask. gold: the gold statement; None for other tasks.

    knowledge_tuple_id: 0 for gold, whose tuple may not be stored yet (store_gold_tuple).
    """

    relation: Relation
    knowledge_tuple_id: int
    statement: str
    spans: list[list[int]]
    entities: list[str]
    n_wanted: int
    additions: dict[str, Any] | None
    position: int = 0
    gold: GoldStatement | None = None

    @property
    def is_gold(self) -> bool:
        return self.gold is not None

    @property
    def gold_label(self) -> str:
        return self.gold.label if self.gold else ""

    @property
    def parts(self) -> list[tuple[str, bool]]:
        return statement_parts(self.statement, self.spans)


class FrozenRound(NamedTuple):
    """The unsaved content of a round. tasks: all tasks, including gold, ordered by position.

    relation_instructions: text by relation id. judged: labels of the judge that defines the strata, if any.
    """

    relations: list[Relation]
    samples: list[Sample]
    tasks: list[FrozenTask]
    training: list[TrainingStatement]
    relation_instructions: dict[str, str]
    judged: JudgeStrata | None

    def noise_warnings(self) -> list[dict[str, Any]]:
        """Return the warning of each sampled harvest that is probably noise."""
        jobs = {sample.stratum.job_id: sample.stratum.job for sample in self.samples}
        return [job.noise_warning for job in jobs.values() if job.noise_warning]

    def draws(self, task_ids: Mapping[int, int]) -> Iterator[tuple[int, int, int, float, int | None]]:
        """Yield (stratum id, task id, harvested tuple id, inclusion probability, cluster) for each draw.

        task_ids: ids of stored non-gold tasks by knowledge tuple id.
        """
        first = 0
        for stratum, tuples, clusters, _ in self.samples:
            probability = stratum.sample_size / stratum.population
            for harvested, cluster in zip_longest(tuples, clusters):
                number = None if cluster is None else first + cluster
                yield stratum.pk, task_ids[harvested.knowledge_tuple_id], harvested.pk, probability, number
            first += max(clusters, default=-1) + 1


def freeze_round(round: Round, by: User = None) -> FrozenRound:
    """Return the content that the round would have if the draft were opened.

    Deterministic for the same description, harvests, and gold. by: user whose visible harvests are sampled; None for
    all. Raises BadRoundSpec, BadCut, NotFound, NothingToSample, NotEnoughGold, MissingReferences,
    JudgeNotReady, or SeveralJudges.
    """
    rng = np.random.default_rng(round.seed)
    cells = _cells_with_jobs(round, by)
    edited = instructions_by_relation(round)
    judged = judge_strata(round)
    samples = [sample for cell, job, path in cells for sample in draw_cell(round, cell, job, path, rng, judged)]
    # A tuple drawn for several cells becomes one task, with the surface form of the first cell.
    tasks: dict[int, FrozenTask] = {}
    references = _imported_references(round, samples)
    for stratum, tuples, *_ in samples:
        new = [harvested for harvested in tuples if harvested.knowledge_tuple_id not in tasks]
        statements = freeze_statements(stratum.relation.statement, [harvested.surface for harvested in new])
        for (_, pk, _, _, surface, _), (text, spans) in zip(new, statements, strict=True):
            additions = additions_of(round, stratum.relation.name, surface, text, references.get(pk, ()))
            tasks[pk] = FrozenTask(stratum.relation, pk, text, spans, surface, round.n_wanted_first, additions)
    relations = list({job.relation_id: job.relation for _, job, _ in cells}.values())
    gold = choose_gold(round, relations, [drawn for sample in samples for drawn in sample.tuples], len(tasks))
    gold_tasks = []
    for answer in gold.mixed_in:
        text, spans = freeze_statement(answer.relation.statement, answer.entities)
        entities = list(answer.entities)
        additions = additions_of(round, answer.relation.name, entities, text)
        n_wanted = 0 if round.gold_reuse else round.n_wanted_first
        gold_tasks.append(FrozenTask(answer.relation, 0, text, spans, entities, n_wanted, additions, gold=answer))
    all_tasks = [*tasks.values(), *gold_tasks]
    for task, position in zip(all_tasks, _positions(len(tasks), len(gold_tasks), rng), strict=True):
        task.position = position
    if round.cluster_size:  # statements with the same subject follow one another
        place: dict[str, int] = {}
        for task in all_tasks:
            place.setdefault(task.entities[0].casefold(), task.position)
        all_tasks.sort(key=lambda task: (place[task.entities[0].casefold()], task.position))
        for position, task in enumerate(all_tasks):
            task.position = position
    return FrozenRound(
        relations=relations,
        samples=samples,
        tasks=sorted(all_tasks, key=attrgetter("position")),
        training=[training_statement(round, position, statement) for position, statement in enumerate(gold.training)],
        relation_instructions={
            str(relation.pk): edited.get(relation.pk) or relation_guide(relation, *gold.examples[relation.pk])
            for relation in relations
        },
        judged=judged,
    )


def _positions(n_tasks: int, n_gold: int, rng: np.random.Generator) -> list[int]:
    """Return the positions of the tasks, followed by those of gold: one at a random place in each of n_gold intervals.

    The intervals have equal length, to within one position, so every annotator receives gold at a constant rate.
    """
    n = n_tasks + n_gold
    ends = [n * number // n_gold for number in range(1, n_gold + 1)] if n_gold else []
    gold = [int(rng.integers(begin, end)) for begin, end in pairwise([0, *ends])]
    others = np.setdiff1d(np.arange(n), gold)
    return [*rng.permutation(others).tolist(), *rng.permutation(gold).tolist()]


def _imported_references(round: Round, samples: Sequence[Sample]) -> dict[int, list[str]]:
    """Return the imported references by knowledge tuple id, if the round shows them.

    Raises MissingReferences if all references are missing, or if missing references could reveal the LM or setting.
    """
    if not round.imported_references:
        return {}
    references: defaultdict[int, dict[str, None]] = defaultdict(dict)  # in the order of cells, without duplicates
    for sample in samples:
        for harvested in sample.tuples:
            references[harvested.knowledge_tuple_id] |= dict.fromkeys(harvested.references or ())
    n_missing = sum(not texts for texts in references.values())
    has_several_sides = len({(sample.stratum.language_model_id, sample.stratum.setting) for sample in samples}) > 1
    if n_missing == len(references) or (n_missing and has_several_sides):
        raise DomainError(
            "MissingReferences",
            f"{n_missing} of {len(references)} statements have no imported references. If a round has several LMs or "
            "settings, all statements need references, because missing references could reveal the LM.",
        )
    return {pk: list(texts) for pk, texts in references.items()}


def _cells_with_jobs(round: Round, by: User) -> list[tuple[Cell, HarvestJob, str]]:
    """Return (cell, finished harvest, path in the description) for each cell of the round."""
    cells = cells_of(round)
    jobs = HarvestJob.objects.visible_to(by).with_cell()
    numbered = jobs.in_bulk([cell.job for cell in cells if cell.job])
    first: dict[CellId, str] = {}
    with_jobs = []
    for position, cell in enumerate(cells):
        path = f"cells[{position}]"
        job = numbered.get(cell.job) if cell.job else _newest_harvest(cell, jobs, round, by, path)
        if job is None:
            raise NotFound(f"No finished harvest for {path} ({cell}). Create the harvest first.")
        if job.status != Job.Status.SUCCEEDED:
            raise DomainError("NothingToSample", f"Job {job.pk} of {path} is {job.status}. Wait until it succeeds.")
        # A tuple drawn twice for a cell would count twice in the cell's rate.
        other = first.setdefault((job.relation_id, job.language_model_id, job.setting), path)
        if other != path:
            raise DomainError("BadRoundSpec", f"{other} and {path} are the same cell, {job}. List each cell once.")
        with_jobs.append((cell, job, path))
    return with_jobs


def _newest_harvest(cell: Cell, jobs: QuerySet[HarvestJob], round: Round, by: User, path: str) -> HarvestJob | None:
    """Return the newest harvest of a cell that the description identifies by relation, LM, and setting.

    Harvests with tuples are preferred and, among these, harvests of the round's project.
    """
    finished = jobs.succeeded()
    visible = Relation.objects.visible_to(by).values("pk")
    candidates = Relation.objects.filter(Q(pk__in=visible) | Q(pk__in=finished.order_by().values("relation")))
    relation = find_relation(cell.relation, f"{path}.relation", candidates)
    jobs = finished.filter(relation=relation, setting=cell.setting)
    model = cell.model
    if not LanguageModel.objects.filter(name=model).exists():  # may be an abbreviated name
        try:
            model = resolve_name(model, jobs.values_list("language_model__name", flat=True), "LM")
        except UnresolvedName as refusal:
            if refusal.is_ambiguous:
                raise DomainError("BadRoundSpec", f"{path}.model: {refusal}") from None
            return None
    jobs = jobs.filter(language_model__name=model).order_by("-pk")
    with_tuples = jobs.filter(n_tuples__gt=0)
    newest: HarvestJob | None = with_tuples.filter(project=round.project_id).first() or with_tuples.first()
    return newest or jobs.first()


def find_relation(name: str, path: str, among: QuerySet[Relation] | None = None) -> Relation:
    """Return the relation named at `path` of a description. Raises UnresolvedName, or BadRoundSpec if ambiguous."""
    try:
        return resolve_relation(name, among=among)
    except UnresolvedName as refusal:
        if refusal.is_ambiguous:
            raise DomainError("BadRoundSpec", f"{path}: {refusal}") from None
        raise


def instructions_by_relation(round: Round) -> dict[int, str]:
    """Return edited instructions by relation id. Raises NotFound if a relation was deleted."""
    texts = round.spec.get("relation_instructions", {})
    return {find_relation(name, "relation_instructions").pk: text for name, text in texts.items() if text}


def populations(round: Round, by: User = None) -> list[tuple[HarvestJob, QuerySet[HarvestedTuple]]]:
    """Return, for each cell of a draft, the harvest and the population (the tuples from which the sample is drawn).

    Raises the same errors as freeze_round.
    """
    return [(job, population_of(round, cell, job)) for cell, job, _ in _cells_with_jobs(round, by)]


def population_of(round: Round, cell: Cell, job: HarvestJob) -> QuerySet[HarvestedTuple]:
    """Return the tuples in the cell's cut, ordered by rank.

    Hidden tuples are excluded. Sensitive tuples are excluded unless the round includes them.
    """
    tuples = job.tuples.presentable(include_sensitive=round.include_sensitive)
    if cell.cut:
        tuples = tuples.filter(rank__lte=kept_size(job, parse_cut(cell.cut)))
    return tuples.order_by("rank")


def draw_cell(
    round: Round, cell: Cell, job: HarvestJob, path: str, rng: np.random.Generator, judged: JudgeStrata | None = None
) -> list[Sample]:
    """Return a simple random sample without replacement, or a sample of clusters, from each stratum of a cell.

    Strata are defined by the labels of the judge if there is one, otherwise by ranks.
    """
    tuples = population_of(round, cell, job)
    population = list(tuples.values_list("rank", "knowledge_tuple"))
    subject = KeyTextTransform("0", "knowledge_tuple__entities")
    subjects = dict(tuples.values_list("rank", subject)) if round.cluster_size else {}
    n = len(population) if cell.n is None else cell.n
    if not population:
        place = f"within the cut {cell.cut}" if cell.cut else "in its harvest"
        raise DomainError(
            "NothingToSample", f"{path} ({job}, job {job.pk}) has no tuples {place}. Change the cut or the job."
        )
    if n > len(population):
        raise DomainError(
            "NothingToSample",
            f"{path} ({job}, job {job.pk}) has {len(population)} tuples but n is {n}. Reduce n, or use null for all.",
            on_page=f"The harvest {job} has {counted(len(population), 'tuple')}"
            f"{f' in the cut {cell.cut}' if cell.cut else ''}. "
            f"Enter at most {counted(len(population), 'statement')}, or leave the field empty to use all.",
        )
    labels, strata = _strata_of(population, cell, path, judged)
    if n < len(strata):
        raise DomainError(
            "NothingToSample",
            f"{path} ({job}, job {job.pk}) has {len(strata)} strata but n is {n}. Draw at least one tuple per stratum.",
        )
    spreads, least = (judged.spreads(labels), LEAST_PER_STRATUM) if judged else (None, 1)
    sizes = allocate(n, [len(stratum) for stratum in strata], cell.allocation, spreads, least)
    return [
        Sample(
            Stratum(
                round=round,
                relation=job.relation,
                language_model=job.language_model,
                setting=job.setting,
                job=job,
                cut=cell.cut,
                rank_from=stratum[0],
                rank_to=stratum[-1],
                judge_label=label,
                ranks=stratum if label else None,
                population=len(stratum),
                sample_size=size,
            ),
            *_drawn(job, stratum, size, rng, subjects, round.cluster_size),
        )
        for label, stratum, size in zip(labels, strata, sizes, strict=True)
    ]


def _strata_of(
    population: Sequence[tuple[int, int]], cell: Cell, path: str, judged: JudgeStrata | None
) -> tuple[list[str], list[Sequence[int]]]:
    """Return the labels and the ranks of the strata. Labels are empty for strata that are defined by ranks."""
    if judged is None:
        if cell.allocation == "optimal":
            raise DomainError("BadRoundSpec", f"{path}.allocation: 'optimal' requires a judge. Set 'judge'.")
        strata = rank_strata([rank for rank, _ in population], cell.strata)
        return [""] * len(strata), strata
    if cell.strata is not None:
        raise DomainError(
            "BadRoundSpec", f"{path}.strata: the labels of the judge already define strata. Omit 'strata' or 'judge'."
        )
    by_label = judged.strata(population)
    return list(by_label), list(by_label.values())


def _tuples_of(job: HarvestJob, ranks: Sequence[int]) -> list[DrawnTuple]:
    columns = ("pk", "knowledge_tuple", "knowledge_tuple__relation", "knowledge_tuple__key", "surface", "references")
    rows = job.tuples.order_by("rank").values_list(*columns)
    parts = (ranks[start : start + ROWS_AT_ONCE] for start in range(0, len(ranks), ROWS_AT_ONCE))
    return [DrawnTuple(*row) for part in parts for row in rows.filter(rank__in=part)]


def _drawn(
    job: HarvestJob,
    ranks: Sequence[int],
    n: int,
    rng: np.random.Generator,
    subjects: Mapping[int, str],
    most: int | None,
) -> tuple[list[DrawnTuple], Sequence[int], Mapping[str, int]]:
    """Return the fields of a Sample after its stratum. subjects: by rank. most: maximum size of a cluster, or None."""
    if most is None:
        return _tuples_of(job, draw_ranks(ranks, n, rng)), (), {}
    names, subject = np.unique([subjects[rank] for rank in ranks], return_inverse=True)
    cluster = parts_of_clusters(subject, most, rng)
    drawn = np.sort(draw_clusters(cluster, n, rng))
    tuples = _tuples_of(job, np.asarray(ranks)[drawn].tolist())
    return tuples, cluster[drawn].tolist(), dict(zip(names.tolist(), np.bincount(subject).tolist(), strict=True))


def draw_ranks(ranks: Sequence[int], sample_size: int, rng: np.random.Generator) -> list[int]:
    """Return a simple random sample of `ranks` without replacement, in ascending order."""
    return sorted(rng.choice(ranks, size=sample_size, replace=False).tolist())


def rank_strata(ranks: Sequence[int], strata: int | Sequence[int] | None) -> list[Sequence[int]]:
    """Split ascending `ranks` into non-empty strata.

    strata: None for one stratum, the number of strata (their sizes differ by at most one), or the first rank of each
    stratum.
    """
    if strata is None:
        return [ranks] if ranks else []
    if isinstance(strata, int):
        ends = [len(ranks) * part // strata for part in range(strata + 1)]
    else:
        ends = [*(bisect_left(ranks, begin) for begin in strata), len(ranks)]
    return [ranks[begin:end] for begin, end in pairwise(ends) if begin < end]
