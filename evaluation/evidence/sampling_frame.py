"""The sampling frame of a report: what each cell's harvest was, what was left of it to draw from, and its prompts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from django.db.models import Q, QuerySet

from annotation.models import Round
from evaluation.evidence.arrays import Evidence, StratumKey
from kgharvest.harvests.cuts import parse_cut
from kgharvest.models import HarvestedTuple, HarvestJob, JobPrompt, KnowledgeTuple

BY_LENGTH = ("top", "share")  # cuts that the length of a harvest decides alone
HARVEST = ("job", "origin", "revision", "dtype", "device", "harvested_at", "code_version", "harvested")
FRAME = ("cut", "kept", "left_out", "hidden", "sensitive", "population")

Ranks = dict[int, list[int]]  # by job


def sampled_cells(round: Round, evidence: Evidence) -> list[dict[str, Any]]:
    """Return an entry per cell, in the order of the evidence: `cells` of `conduct` in docs/report-json.md."""
    ids = {stratum.job for stratum in evidence.strata if stratum.job}
    jobs = HarvestJob.objects.select_related("language_model").in_bulk(ids)
    cuts = dict(round.strata.exclude(job=None).values_list("job", "cut"))
    prompts = _prompts(ids)
    is_hidden = Q(curation=KnowledgeTuple.Curation.HIDDEN)
    hidden = _ranks(ids, KnowledgeTuple.objects.filter(is_hidden))
    shown_sensitive = KnowledgeTuple.objects.filter(~is_hidden, is_sensitive=True)
    sensitive = {} if round.include_sensitive else _ranks(ids, shown_sensitive)
    n_drawn = np.bincount(evidence.draws.stratum, minlength=len(evidence.strata)).tolist()
    strata: list[list[StratumKey]] = [[] for _ in evidence.cells]
    drawn = [0] * len(evidence.cells)
    for stratum, n in zip(evidence.strata, n_drawn, strict=True):
        strata[stratum.cell].append(stratum)
        drawn[stratum.cell] += n
    entries = []
    for number, key in enumerate(evidence.cells):
        job = jobs.get(strata[number][0].job)
        known = dict.fromkeys((*HARVEST, *FRAME))
        own_prompts = prompts.get(job.pk, []) if job else []
        if job is not None:
            left_out = hidden.get(job.pk, []), sensitive.get(job.pk, [])
            known = harvest_entry(job) | frame_entry(job.n_tuples, cuts[job.pk], strata[number], *left_out)
        entries.append({
            **key._asdict(), **known, "n_strata": len(strata[number]), "drawn": drawn[number],
            "n_prompts": len(own_prompts), "prompts": own_prompts,
        })  # fmt: skip
    return entries


def harvest_entry(job: HarvestJob) -> dict[str, Any]:
    """Return how a harvest was made; an imported one tells only when it was stored."""
    return {
        "job": job.fingerprint,
        "origin": job.origin,
        "revision": job.summary.get("revision") or job.language_model.revision or None,
        "dtype": job.payload.get("dtype"),
        "device": job.payload.get("device"),
        "harvested_at": job.finished_at.isoformat(timespec="seconds") if job.finished_at else None,
        "code_version": job.summary.get("code_version"),
        "harvested": job.n_tuples,
    }


def frame_entry(
    n_tuples: int, cut: str, strata: Sequence[StratumKey], hidden: Sequence[int], sensitive: Sequence[int]
) -> dict[str, Any]:
    """Return what was left to draw from of a harvest of `n_tuples`. hidden, sensitive: ranks, as they are now."""
    population = sum(stratum.population or 0 for stratum in strata)
    kept = n_kept(n_tuples, cut, max(stratum.rank_to or 0 for stratum in strata))
    return {
        "cut": cut or None,
        "kept": kept,
        "left_out": kept - population,
        "hidden": sum(rank <= kept for rank in hidden),
        "sensitive": sum(rank <= kept for rank in sensitive),
        "population": population,
    }


def n_kept(n_tuples: int, cut: str, last_rank: int) -> int:
    """Return how many tuples the cut keeps; where scores decide that, up to the last rank that was drawn from."""
    if not cut:
        return n_tuples
    parsed = parse_cut(cut)
    return parsed.size(range(n_tuples)) if parsed.kind in BY_LENGTH else last_rank


def _ranks(ids: Collection[int], tuples: QuerySet[KnowledgeTuple]) -> Ranks:
    """tuples: few, found by a partial index."""
    harvested = HarvestedTuple.objects.filter(job__in=ids, knowledge_tuple__in=tuples.values("pk"))
    ranks: Ranks = defaultdict(list)
    for job, rank in harvested.order_by().values_list("job", "rank"):
        ranks[job].append(rank)
    return ranks


def _prompts(ids: Collection[int]) -> dict[int, list[dict[str, Any]]]:
    """Return the prompts of each job, those with the largest weights first."""
    prompts = defaultdict(list)
    columns = ("job", "prompt__text", "prompt__origin", "weight")
    for job, text, origin, weight in JobPrompt.objects.filter(job__in=ids).values_list(*columns):
        prompts[job].append({"text": text, "origin": origin, "weight": weight})
    return prompts
