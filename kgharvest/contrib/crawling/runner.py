"""Runner of crawls. Every step is stored when it ends, and a resumed crawl continues with the next step.

Imports torch, so only workers and commands that run a crawl import this module.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import median

from django.db.models import Max, Sum
from django.utils import timezone

from kgharvest.contrib.crawling.models import Crawl, CrawledEntity, CrawlStep
from kgharvest.contrib.crawling.services import setting_at
from kgharvest.engine.entities import entity_of
from kgharvest.engine.filters import is_number
from kgharvest.engine.harvest import Prepared, harvest, harvest_prepared, prepare
from kgharvest.engine.language_models.base import LanguageModel, filled_tokens, fits
from kgharvest.engine.parts import InTurn
from kgharvest.engine.rescoring import spellings
from kgharvest.engine.scoring import Questions
from kgharvest.engine.types import (
    BadPrompt,
    BadSeed,
    BadText,
    HarvestParams,
    HarvestResult,
    HarvestSpec,
    OnProgress,
    Progress,
)
from kgharvest.harvests import language_models
from kgharvest.harvests.runner import HarvestRequest, payload_of, spec_of, store_result
from kgharvest.jobs import ledger
from kgharvest.models import HarvestJob, Job, Relation

ASKED_WITH = ("One thing that is known about <ENT0> is its <ENT1>.",)
NAMES_PER_ENTITY = 5
RELATION_ERRORS = (BadPrompt, BadSeed, BadText)  # other errors can be temporary and end the crawl's attempt


def run_crawl(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Run a job of kind "crawl", without the steps of earlier attempts."""
    crawl = Crawl.objects.select_related("language_model").get(pk=job.pk)
    heartbeat(Progress(language_models.LOADING, 0))
    with heartbeat.kept_alive():
        lm = language_models.load(crawl.language_model, crawl.payload["device"], crawl.payload["dtype"])
    Crawler(crawl, lm, heartbeat).run()
    return lambda: None


class Crawler:
    def __init__(self, crawl: Crawl, lm: LanguageModel, heartbeat: ledger.Heartbeat):
        self._crawl, self._lm, self._heartbeat = crawl, lm, heartbeat
        stored = crawl.payload["params"]
        self._params = HarvestParams(**stored | {"disabled_filters": frozenset(stored["disabled_filters"])})
        relations = Relation.objects.in_bulk(crawl.payload["relations"])
        self._relations = [relations[pk] for pk in crawl.payload["relations"] if pk in relations]
        self._prepared: dict[int, tuple[Prepared, HarvestParams]] = {}

    def run(self) -> None:
        for depth in range(1, self._crawl.depth + 1):
            frontier = list(self._crawl.entities.filter(depth=depth - 1).order_by("position"))
            for relation in self._relations:
                if frontier and self._n_calls_left() and not self._is_done(depth, relation):
                    self._complete(depth, relation, frontier)
            # Masked LMs cannot name a relation of several words.
            if frontier and self._lm.entity_end and self._n_calls_left() and not self._is_done(depth, None):
                self._ask_for_relations(depth, frontier)

    def _is_done(self, depth: int, relation: Relation | None) -> bool:
        return self._crawl.steps.filter(depth=depth, relation=relation).exists()

    def _n_calls_left(self) -> int:
        n_calls: int = self._crawl.steps.aggregate(n=Sum("n_calls"))["n"] or 0
        return self._crawl.max_calls - n_calls

    def _watch(self, depth: int, name: str) -> OnProgress:
        def report(progress: Progress) -> None:
            self._heartbeat(Progress(f"depth {depth}, {name}", progress.done, progress.total, progress.stage))

        return report

    def _complete(self, depth: int, relation: Relation, frontier: Sequence[CrawledEntity]) -> None:
        watch = self._watch(depth, relation.name)
        step = CrawlStep(crawl=self._crawl, depth=depth, relation=relation, n_calls=0)
        try:
            prepared, params = self._prepare(relation, watch)
        except RELATION_ERRORS as error:
            step.fault = str(error)
            self._heartbeat.store(step.save)
            return
        surfaces = [entity.surface for entity in frontier]
        bounds = head_bounds(self._lm, prepared, surfaces, params, watch)
        heads = [surface for surface, bound in zip(surfaces, bounds, strict=True) if bound >= params.min_score]
        step.n_unfit = len(surfaces) - len(heads)
        params = replace(params, heads=tuple(heads[: self._n_calls_left()]))
        step.n_calls = len(params.heads)
        if not params.heads:
            self._heartbeat.store(step.save)
            return
        result = harvest_prepared(prepared, params, self._lm, InTurn(watch))
        self._heartbeat.store(partial(self._store, step, params, result))

    def _prepare(self, relation: Relation, watch: OnProgress) -> tuple[Prepared, HarvestParams]:
        """Return the relation's prompts, and parameters with a minimum score. Raises EngineError."""
        if relation.pk not in self._prepared:
            prepared = prepare(spec_of(self._request(relation, self._params)), self._lm, watch)
            params, seed_scores = self._params, [score for _, score in prepared.comprehension.seed_scores]
            if params.min_score is None and not seed_scores:
                raise BadSeed("The LM cannot score any seed tuple. Set a minimum score.")
            if params.min_score is None:
                params = replace(params, min_score=median(seed_scores))
            self._prepared[relation.pk] = prepared, params
        return self._prepared[relation.pk]

    def _request(self, relation: Relation, params: HarvestParams) -> HarvestRequest:
        crawl = self._crawl
        placement = {name: crawl.payload[name] for name in ("device", "dtype")}
        return HarvestRequest(relation, crawl.language_model, crawl.setting, params, **placement)

    def _store(self, step: CrawlStep, params: HarvestParams, result: HarvestResult) -> None:
        """Store a finished harvest, the step, and the new entities. Requires a transaction."""
        crawl, relation, now = self._crawl, step.relation, timezone.now()
        assert relation is not None, "steps without relation have no harvest"
        step.job = HarvestJob.objects.create(
            kind="import",
            project_id=crawl.project_id,
            status=Job.Status.SUCCEEDED,
            relation=relation,
            language_model=crawl.language_model,
            setting=setting_at(crawl, step.depth),
            launch_id=crawl.launch_id,
            origin=HarvestJob.Origin.IMPORTED,
            payload=payload_of(self._request(relation, params)),
            lm=crawl.lm,
            created_by_id=crawl.created_by_id,
            started_at=now,
            finished_at=now,
        )
        more_summary = {"source": f"crawl {crawl.pk}, depth {step.depth}"}
        store_result(step.job, result, self._lm.revision, more_summary=more_summary)
        step.save()
        self._add_entities(step)

    def _add_entities(self, step: CrawlStep) -> None:
        """Add the entities of the step's tuples that are new to the crawl, best tuples first, up to the maximum."""
        crawl, found = self._crawl, {}
        for row in step.job.tuples.select_related("knowledge_tuple").order_by("rank"):
            for name, surface in zip(row.knowledge_tuple.entities[1:], row.surface[1:], strict=True):
                if not is_number(entity_of(name).words):
                    found.setdefault(name, surface)
        known = set(crawl.entities.filter(name__in=found).values_list("name", flat=True))
        position = 1 + crawl.entities.aggregate(last=Max("position"))["last"]
        new = [(name, surface) for name, surface in found.items() if name not in known]
        CrawledEntity.objects.bulk_create(
            CrawledEntity(crawl=crawl, name=name, surface=surface, depth=step.depth, position=number)
            for number, (name, surface) in enumerate(new[: crawl.max_entities - position], start=position)
        )

    def _ask_for_relations(self, depth: int, frontier: Sequence[CrawledEntity]) -> None:
        """Ask an LM that writes lines for names of relations. Count those that the crawl does not have.

        The examples are the relations of the crawl, each with the head of a seed tuple.
        """
        labels = {relation.name.replace("_", " "): relation for relation in self._relations}
        examples = {relation.seed_tuples[0][0]: label for label, relation in labels.items()}
        heads = [entity.surface for entity in frontier if entity.surface not in examples][: self._n_calls_left()]
        step = CrawlStep(crawl=self._crawl, depth=depth, n_calls=len(heads))
        if len(examples) < 2 or not heads:
            return
        params = HarvestParams(heads=tuple(heads), max_tuples=NAMES_PER_ENTITY, candidates=2 * NAMES_PER_ENTITY)
        spec = HarvestSpec("relation", ASKED_WITH, tuple(examples.items()), "human", params=params)
        try:
            result = harvest(spec, self._lm, self._watch(depth, "names of relations"))
        except RELATION_ERRORS as error:
            step.n_calls, step.fault = 0, str(error)
        else:
            names = Counter(scored.entities[1] for scored in result.tuples)
            step.suggestions = {name: n for name, n in names.most_common() if name not in labels}
        self._heartbeat.store(step.save)


def head_bounds(
    lm: LanguageModel, prepared: Prepared, heads: Sequence[str], params: HarvestParams, on_progress: OnProgress
) -> list[float]:
    """Return an upper bound on the consistency of all tuples with each head, in nats.

    Log-probabilities are never positive, so by Eq. 1 a tuple is at most as compatible as its head alone. The bound is
    the largest over the casings of the head and the lengths of the other entities; -inf for unwritable heads.
    """
    prompt_set = prepared.prompts.prompt_set
    reader, prompts = prompt_set.reader(lm), prompt_set.prompts
    arity = len(prompts[0].slots)
    lengths = (1,) if lm.entity_end else range(1, params.max_entity_tokens + 1)  # these LMs do not see later slots
    questions = Questions(reader, prompts)
    rows: list[tuple[int, int]] = []  # per sequence: number of the head, number of its tokens
    for number, head in enumerate(heads):
        surfaces = spellings(head) if lm.is_cased else [head]
        for surface, rest in product(surfaces, product(lengths, repeat=arity - 1)):
            try:
                encoded = reader.encode_entity(surface)
            except BadSeed:
                continue
            pattern = (len(encoded), *rest)
            if not all(fits(reader, prompt, pattern) for prompt in prompts):
                continue
            tokens = filled_tokens(reader, [encoded])
            for n_before, token in enumerate(tokens):
                questions.ask(pattern, tokens[:n_before], token)
            rows.append((number, len(tokens)))
    answers = questions.answer(params.batch_size, lambda: on_progress(Progress("fit", 0))) @ prompt_set.weights
    bounds, start = [-float("inf")] * len(heads), 0
    for number, n_tokens in rows:
        bounds[number] = max(bounds[number], float(answers[start : start + n_tokens].sum()))
        start += n_tokens
    return bounds
