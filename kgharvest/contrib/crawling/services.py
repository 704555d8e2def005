"""Crawls: creation, rounds that cover every depth, and the accuracy per depth."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from django.db import transaction
from django.db.models import Count, Q, Sum

from annotation.judging.verdicts import Verdict
from annotation.models import Stratum
from kgharvest.accounts.projects import project_for
from kgharvest.contrib.crawling.models import Crawl, CrawledEntity
from kgharvest.engine.entities import entity_of
from kgharvest.engine.language_models.networks.placement import DEFAULT_DEVICE, DEFAULT_DTYPE
from kgharvest.engine.types import HarvestParams
from kgharvest.errors import DomainError, NotFound
from kgharvest.harvests import language_models
from kgharvest.harvests.runner import HarvestRequest, check_harvest
from kgharvest.models import LanguageModel, Launch, Project, Relation
from kgharvest.statistics.rates import Rate, population_rate

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
    """Create a job with its seed entities. Run it with `ledger.run_job`, or wake a worker with `ledger.enqueue`.

    Raises BadCrawl, NotAllowed, ProjectNotNamed, or the errors of `check_harvest`.
    """
    project = project_for(by, project)
    seeds = {entity_of(seed).folded: seed for seed in reversed(request.seeds)}
    names = list(reversed(seeds))
    if not names or len(names) > request.max_entities:
        raise DomainError("BadCrawl", f"The crawl has {len(names):,} seeds. Provide 1 to {request.max_entities:,}.")
    if min(request.depth, request.max_calls, len(request.relations)) < 1:
        raise DomainError("BadCrawl", "A crawl needs a depth of 1 or more, a call, and a relation. Add them.")
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
    """One depth of a crawl. n_entities: entities found at this depth. accuracy: share of true tuples, from verdicts."""

    n_calls: int
    n_tuples: int
    n_entities: int
    n_judged: int
    accuracy: Rate


def depth_summary(crawl: Crawl, depth: int) -> DepthSummary:
    """Return the numbers of a depth up to now. The verdicts are those of the newest round with any.

    Relations are strata of the depth, weighted by their numbers of tuples.
    """
    sums = crawl.steps.filter(depth=depth).aggregate(calls=Sum("n_calls"), tuples=Sum("job__n_tuples"))
    strata = Stratum.objects.filter(job__crawl_step__crawl=crawl, round__project=crawl.project_id)
    accepted = Q(draws__task__verdict=Verdict.ACCEPTED)
    judged = accepted | Q(draws__task__verdict=Verdict.REJECTED)
    newest = strata.filter(judged).order_by("-round").values_list("round", flat=True).first()
    rows = strata.filter(round=newest, job__crawl_step__depth=depth).annotate(
        n_hits=Count("draws", filter=accepted), n=Count("draws", filter=judged)
    )
    counts = np.array(rows.values_list("n_hits", "n", "population"), dtype=np.int64).reshape(-1, 3)
    n_entities = crawl.entities.filter(depth=depth).count()
    n_judged, accuracy = int(counts[:, 1].sum()), population_rate(*counts.T)
    return DepthSummary(sums["calls"] or 0, sums["tuples"] or 0, n_entities, n_judged, accuracy)
