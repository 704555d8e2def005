"""Crawls: creation, rounds that cover every depth, and the accuracy per depth."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from django.db import transaction
from django.db.models import Count, F, Q, Sum

from annotation.judging.verdicts import Verdict
from annotation.models import Stratum
from kgharvest.accounts.projects import project_for
from kgharvest.contrib.crawling.models import Crawl, CrawledEntity
from kgharvest.engine.entities import entity_of, is_writable
from kgharvest.engine.language_models.networks.placement import DEFAULT_DEVICE, DEFAULT_DTYPE
from kgharvest.engine.types import HarvestParams
from kgharvest.errors import DomainError, NotFound
from kgharvest.harvests import language_models
from kgharvest.harvests.runner import HarvestRequest, check_harvest
from kgharvest.jobs import ledger
from kgharvest.models import LanguageModel, Launch, Project, Relation
from kgharvest.statistics.rates import Rate, population_rate

MOST_DEPTH = 20
PARAMS = HarvestParams(max_tuples=5, candidates=30)


@dataclass(frozen=True)
class CrawlRequest:
    """Input of a crawl. seeds: entities to start from, as written. See `Crawl` for the limits.

    params: parameters of its harvests; limits apply to every entity. If `min_score` is None, a tuple must reach the
    median consistency of the relation's seed tuples.
    """

    seeds: Sequence[str]
    relations: Sequence[Relation]
    language_model: LanguageModel
    setting: str = "multi"
    depth: int = 2
    max_entities: int = 1000
    max_calls: int = 5000
    params: HarvestParams = field(default_factory=lambda: PARAMS)
    device: str = DEFAULT_DEVICE
    dtype: str = DEFAULT_DTYPE


@transaction.atomic
def create_crawl(request: CrawlRequest, by: Any = None, project: Project | None = None) -> Crawl:
    """Create a job with its seed entities. Raises BadCrawl, the errors of `check_harvest`, NotAllowed, ProjectNotNamed.

    To run it in this process, call `ledger.run_job`; for a worker, call `ledger.enqueue`.
    """
    project = project_for(by, project)
    seeds = {entity_of(seed).folded: seed for seed in reversed(request.seeds)}
    names = list(reversed(seeds))
    if not names or not all(name and is_writable(name) for name in names):
        raise DomainError("BadCrawl", "A crawl needs seed entities that are printable and not blank. Add one per line.")
    if len(names) > request.max_entities:
        raise DomainError("BadCrawl", f"{len(names):,} seed entities exceed the maximum of {request.max_entities:,}.")
    if not 1 <= request.depth <= MOST_DEPTH or request.max_calls < 1:
        raise DomainError("BadCrawl", f"Set the depth to 1 to {MOST_DEPTH}, and the calls to 1 or more.")
    if not request.relations:
        raise DomainError("BadCrawl", "No relation selected. Use --relation, or --set for a whole set.")
    options = {"device": request.device, "dtype": request.dtype}
    params = replace(request.params, heads=tuple(names))
    for relation in request.relations:
        check_harvest(HarvestRequest(relation, request.language_model, request.setting, params, **options), by)
    crawl = Crawl.objects.create(
        kind=Crawl.KIND,
        project=project,
        language_model=request.language_model,
        setting=request.setting,
        depth=request.depth,
        max_entities=request.max_entities,
        max_calls=request.max_calls,
        launch=Launch.objects.create(project=project, created_by=by),
        payload={
            "relations": [relation.pk for relation in request.relations],
            "params": asdict(params) | {"heads": [], "disabled_filters": sorted(params.disabled_filters)},
            **options,
        },
        lm=language_models.in_words(str(request.language_model), request.device, request.dtype),
        created_by=by,
    )
    CrawledEntity.objects.bulk_create(
        CrawledEntity(crawl=crawl, name=name, surface=seeds[name], depth=0, position=position)
        for position, name in enumerate(names)
    )
    return crawl


@transaction.atomic
def queue_crawl(request: CrawlRequest, by: Any = None, project: Project | None = None) -> Crawl:
    """Create a crawl and wake a worker. Raises as `create_crawl`."""
    crawl = create_crawl(request, by, project)
    ledger.enqueue(crawl)
    return crawl


def find_crawl(number: int, user: Any = None) -> Crawl:
    """Return the crawl if it is visible to `user`. Raises NotFound."""
    crawl = Crawl.objects.visible_to(user).select_related("language_model", "launch").filter(pk=number).first()
    if crawl is None:
        raise NotFound(f"Crawl {number} not found. The command crawl start prints the number.")
    return crawl


def setting_at(crawl: Crawl, depth: int) -> str:
    """Return the setting of the harvests at this depth. Rounds and reports compare settings, and therefore depths."""
    return f"{crawl.setting}-depth-{depth}"


def round_spec(crawl: Crawl, name: str, n: int) -> dict[str, Any]:
    """Return the description of a round that samples at most `n` tuples of each relation at each depth.

    Raises DomainError NothingToSample if the crawl has no tuples.
    """
    steps = crawl.steps.filter(job__n_tuples__gt=0).order_by("depth", "relation__name", "pk")
    cells = [{"job": step.job.pk, "n": min(n, step.job.n_tuples)} for step in steps.select_related("job")]
    if not cells:
        raise DomainError("NothingToSample", f"{crawl} has no tuples. Lower the minimum score, or add relations.")
    return {"name": name, "cells": cells}


class DepthSummary(NamedTuple):
    """One depth of a crawl. n_entities: entities found at this depth. accuracy: share of true tuples, from verdicts.

    suggestions: relation names that the LM gave.
    """

    depth: int
    n_entities: int
    n_calls: int
    n_unfit: int
    n_tuples: int
    n_judged: int
    accuracy: Rate
    suggestions: dict[str, int]


def depth_summaries(crawl: Crawl) -> Iterator[DepthSummary]:
    """Yield the numbers of each depth up to now, from 1. The accuracy is that of the newest round with verdicts.

    Relations are strata of a depth, weighted by their numbers of tuples.
    """
    for depth in range(1, crawl.depth + 1):
        steps = crawl.steps.filter(depth=depth)
        sums = steps.aggregate(calls=Sum("n_calls"), unfit=Sum("n_unfit"), tuples=Sum("job__n_tuples"))
        suggestions: dict[str, int] = {}
        for step in steps.filter(relation=None):
            suggestions |= step.suggestions
        n_judged, accuracy = _accuracy(crawl, depth)
        yield DepthSummary(
            depth,
            crawl.entities.filter(depth=depth).count(),
            *(sums[name] or 0 for name in ("calls", "unfit", "tuples")),
            n_judged,
            accuracy,
            suggestions,
        )


def _accuracy(crawl: Crawl, depth: int) -> tuple[int, Rate]:
    """Return the number of verdicts and the share of accepted tuples at this depth, with its 95 % interval."""
    strata = Stratum.objects.filter(job__crawl_step__crawl=crawl, round__project=crawl.project_id)
    accepted = Q(draws__task__verdict=Verdict.ACCEPTED)
    judged = accepted | Q(draws__task__verdict=Verdict.REJECTED)
    newest = strata.filter(judged).order_by("-round").values_list("round", flat=True).first()
    rows = strata.filter(round=newest, job__crawl_step__depth=depth).annotate(
        n_hits=Count("draws", filter=accepted), n=Count("draws", filter=judged)
    )
    counts = np.array(rows.values_list("n_hits", "n", F("population")), dtype=np.int64).reshape(-1, 3)
    return int(counts[:, 1].sum()), population_rate(*counts.T)
