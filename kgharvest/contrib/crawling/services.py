"""Crawls: creation, rounds that cover every depth, and the accuracy per depth."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from annotation.models import Draw, Round
from evaluation.evidence.evidence import cells_of, drawn_verdicts
from evaluation.evidence.rows import gather_evidence
from evaluation.reports.sections.rates import total_entries
from evaluation.reports.services import one_moment
from kgharvest.accounts.projects import project_for
from kgharvest.contrib.crawling.models import Crawl, CrawledEntity
from kgharvest.engine.entities import entity_of
from kgharvest.engine.language_models.networks.placement import DEFAULT_DEVICE, DEFAULT_DTYPE
from kgharvest.engine.types import HarvestParams
from kgharvest.environment import PROGRAM
from kgharvest.errors import DomainError, NotFound
from kgharvest.harvests import language_models
from kgharvest.harvests.runner import HarvestRequest, check_harvest
from kgharvest.jobs.workers import lacking_for
from kgharvest.models import LanguageModel, Launch, Project, Relation
from kgharvest.statistics.rates import Rate

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
    seeds: dict[str, str] = {}
    for seed in request.seeds:
        seeds.setdefault(entity_of(seed).folded, seed)
    names = list(seeds)
    if not names or len(names) > request.max_entities:
        raise DomainError("BadCrawl", f"The crawl has {len(names):,} seeds. Provide 1 to {request.max_entities:,}.")
    for name, value in (("depth", request.depth), ("maximum number of calls", request.max_calls)):
        if value < 1:
            raise DomainError("BadCrawl", f"The {name} is {value:,}. Set it to 1 or more.")
    if not request.relations:
        raise DomainError("BadCrawl", "The crawl has no relation. Add at least one.")
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


def why_unfinished(crawl: Crawl) -> str:
    """Return the status, the error, and the remedy of a crawl that has not succeeded, otherwise ""."""
    status = Crawl.Status(crawl.status)
    if status == Crawl.Status.SUCCEEDED:
        return ""
    reason = crawl.error if crawl.can_retry else lacking_for(crawl, timezone.now()) or "Wait for its worker."
    resume = f"To continue it in this process, run {PROGRAM} crawl continue {crawl.pk}."
    return " ".join(filter(None, (f"{crawl} is {status.label.lower()}.", reason, resume)))


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
        reason = why_unfinished(crawl) or f"{crawl} has no tuples. Lower the minimum score, or add relations."
        raise DomainError("NothingToSample", reason)
    return {"name": name, "cells": cells}


class DepthSummary(NamedTuple):
    """One depth of a crawl.

    n_unfit: number of skipped calls, because no tuple of the entity in the relation can reach the minimum score.
    n_entities: number of entities found at this depth. n_judged: number of statements with a verdict. accuracy: share
    of accepted tuples.
    """

    n_calls: int
    n_unfit: int
    n_tuples: int
    n_entities: int
    n_judged: int
    accuracy: Rate


def depth_summaries(crawl: Crawl) -> list[DepthSummary]:
    """Return the numbers of every depth, from 1. Verdicts come from the newest round that has any for the crawl.

    The accuracy is `weighted_accuracy` of the report on the round (docs/report-json.md): a relation's weight is its
    number of tuples.
    """
    drawn = Draw.objects.filter(stratum__job__crawl_step__crawl=crawl, task__round__project=crawl.project_id)
    judged = drawn.exclude(task__verdict="").values("task__round")
    round, totals = Round.objects.filter(pk__in=judged).order_by("-pk").first(), {}
    if round:
        with one_moment():
            evidence = gather_evidence(round)
        entries = total_entries(evidence, cells_of(evidence, drawn_verdicts(evidence)))
        totals = {entry["setting"]: entry for entry in entries if entry["model"] == str(crawl.language_model)}
    summaries = []
    for depth in range(1, crawl.depth + 1):
        sums = crawl.steps.filter(depth=depth).aggregate(
            calls=Sum("n_calls", default=0), unfit=Sum("n_unfit", default=0), tuples=Sum("job__n_tuples", default=0)
        )
        n_entities, total = crawl.entities.filter(depth=depth).count(), totals.get(setting_at(crawl, depth), {})
        accuracy = Rate(*(total.get(f"weighted_accuracy{end}") for end in ("", "_low", "_high")))
        summaries.append(DepthSummary(*sums.values(), n_entities, total.get("n", 0), accuracy))
    return summaries
