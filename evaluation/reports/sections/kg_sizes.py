"""How large the KG of a round's LMs and settings is at the cuts of the paper's Table 2, and how accurate there."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log
from typing import Any, NamedTuple

import numpy as np
from django.db.models import Count, F, OuterRef, Subquery

from annotation.models import Round
from evaluation.evidence.arrays import ACCEPTED, INCOMPLETE, Codes, Evidence, Floats
from evaluation.reports.sections.rates import draw_weights
from evaluation.statistics.rates import Rate, wilson_interval_of_share
from kgharvest.models import HarvestedTuple, LanguageModel

BASES = (10, 100)
HALF, WHOLE = "share:0.5", "all"

Sizes = Mapping[int, int]  # tuples kept, by job


class Sampled(NamedTuple):
    """A job of the round. population: how many of its best tuples were drawn from."""

    model: str | None
    setting: str | None
    population: int


class JudgedDraws(NamedTuple):
    """Draws with a verdict and a rank. weight: for how many tuples each stands. All of shape (D,)."""

    job: Codes
    rank: Codes
    is_accepted: np.ndarray
    weight: Floats


def cut_entries(round: Round, evidence: Evidence) -> list[dict[str, Any]]:
    """Return an entry per LM, setting and cut, for docs/report-json.md: a part of what was sampled, so estimable."""
    jobs = _sampled_jobs(round)
    draws = _judged_draws(evidence)
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


def _judged_draws(evidence: Evidence) -> JudgedDraws:
    draws = evidence.draws
    job = np.array([stratum.job or 0 for stratum in evidence.strata], dtype=np.int64)[draws.stratum]
    verdict = evidence.verdict[draws.task]
    is_judged = (verdict != INCOMPLETE) & (draws.rank > 0) & (job > 0)
    columns = job, draws.rank, verdict == ACCEPTED, draw_weights(evidence, is_judged)
    return JudgedDraws(*(column[is_judged] for column in columns))


def _entry(sizes: Sizes, draws: JudgedDraws) -> dict[str, Any]:
    jobs = np.array(sorted(sizes), dtype=np.int64)
    kept = np.array([sizes[job] for job in jobs.tolist()], dtype=np.int64)
    place = np.minimum(np.searchsorted(jobs, draws.job), len(jobs) - 1)
    inside = (jobs[place] == draws.job) & (draws.rank <= kept[place])
    rate = weighted_rate(draws.is_accepted[inside], draws.weight[inside])
    return {
        "size": sum(sizes.values()),
        "n_relations": len(sizes),
        "n": int(inside.sum()),
        "accuracy": rate.value,
        "low": rate.low,
        "high": rate.high,
    }


def weighted_rate(is_accepted: np.ndarray, weight: Floats) -> Rate:
    """Return Hajek's estimate, weighted hits over weights, with Wilson's interval on Kish's effective size."""
    if not len(weight):
        return Rate(None, None, None)
    total = float(weight.sum())
    share = min(float(weight @ is_accepted) / total, 1.0)
    return Rate(share, *wilson_interval_of_share(share, total**2 / float(weight @ weight)))
