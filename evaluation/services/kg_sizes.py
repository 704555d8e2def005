"""How large the KG of a round's LMs and settings is at the cuts of the paper's Table 2, and how accurate there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil, log
from typing import Any, NamedTuple

from django.db.models import Count, F, OuterRef, Subquery

from annotation.models import Draw, Round
from annotation.verdicts import Verdict
from evaluation.metrics.intervals import Rate, wilson_interval_of_share
from kgharvest.models import HarvestedTuple, LanguageModel

BASES = (10, 100)
HALF, WHOLE = "share:0.5", "all"

Sizes = Mapping[int, int]  # tuples kept, by job


class Sampled(NamedTuple):
    """A job of the round. population: how many of its best tuples were drawn from."""

    model: str | None
    setting: str | None
    population: int


class JudgedDraw(NamedTuple):
    job: int
    rank: int
    is_accepted: bool
    weight: float


def cut_entries(round: Round) -> list[dict[str, Any]]:
    """Return an entry per LM, setting and cut, for docs/report-json.md: a part of what was sampled, so estimable."""
    jobs = _sampled_jobs(round)
    draws = list(_judged_draws(round))
    cuts = {f"base:{base}": _base_sizes(jobs, base) for base in BASES}
    cuts[HALF] = {job: ceil(sampled.population / 2) for job, sampled in jobs.items()}
    cuts[WHOLE] = {job: sampled.population for job, sampled in jobs.items()}
    sides = dict.fromkeys((sampled.model, sampled.setting) for sampled in jobs.values())
    return [
        {"model": model, "setting": setting, "cut": cut, **_entry(own, draws)}
        for model, setting in sides
        for cut, sizes in cuts.items()
        if (own := {job: sizes[job] for job in sizes if jobs[job][:2] == (model, setting)})
    ]


def _sampled_jobs(round: Round) -> dict[int, Sampled]:
    models = {model.pk: str(model) for model in LanguageModel.objects.filter(strata__round=round).distinct()}
    rows = round.strata.exclude(job=None).order_by("language_model__name", "setting", "relation__name", "rank_from")
    jobs: dict[int, Sampled] = {}
    for job, model, setting, rank_to in rows.values_list("job", "language_model", "setting", "rank_to"):
        jobs[job] = Sampled(models.get(model), setting or None, rank_to)  # the last stratum reaches furthest
    return jobs


def _base_sizes(jobs: Mapping[int, Sampled], base: int) -> dict[int, int]:
    """Return how many tuples base:k keeps of each job that has k of them, within what was sampled."""
    tuples = HarvestedTuple.objects.filter(job__in=jobs)
    kth = HarvestedTuple.objects.filter(job=OuterRef("job"), rank=base).values("score")[:1]
    kept = tuples.annotate(kth=Subquery(kth)).filter(score__gte=F("kth") + log(0.1))
    sizes = dict(kept.order_by().values_list("job").annotate(n=Count("pk")))
    return {job: size for job, size in sizes.items() if size <= jobs[job].population}


def _judged_draws(round: Round) -> Iterator[JudgedDraw]:
    judged = Draw.objects.filter(stratum__round=round).exclude(task__verdict="").exclude(harvested_tuple=None)
    columns = ("stratum__job", "harvested_tuple__rank", "task__verdict", "inclusion_probability")
    for job, rank, verdict, probability in judged.order_by("pk").values_list(*columns).iterator():
        yield JudgedDraw(job, rank, verdict == Verdict.ACCEPTED, 1 / (probability or 1))


def _entry(sizes: Sizes, draws: list[JudgedDraw]) -> dict[str, Any]:
    inside = [draw for draw in draws if draw.rank <= sizes.get(draw.job, 0)]
    rate = weighted_rate(inside)
    return {
        "size": sum(sizes.values()),
        "n_relations": len(sizes),
        "n": len(inside),
        "accuracy": rate.value,
        "low": rate.low,
        "high": rate.high,
    }


def weighted_rate(draws: list[JudgedDraw]) -> Rate:
    """Return Hajek's estimate, weighted hits over weights, with Wilson's interval on Kish's effective size."""
    if not draws:
        return Rate(None, None, None)
    total = sum(draw.weight for draw in draws)
    share = sum(draw.weight for draw in draws if draw.is_accepted) / total
    n_effective = total**2 / sum(draw.weight**2 for draw in draws)
    return Rate(share, *wilson_interval_of_share(share, n_effective))
