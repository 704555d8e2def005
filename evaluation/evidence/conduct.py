"""Conduct of a round, gathered from the database as JSON: participants, rules, exclusions, samples, harvests.

The number of queries does not depend on the size of the round. People appear as codes, researchers as their role in
the project.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from django.contrib.auth import get_user_model
from django.db.models import Count, Max, Min, Q, QuerySet, Sum

from annotation.models import (
    Adjudication,
    Annotator,
    Assignment,
    Exclusion,
    GoldDecision,
    Judgment,
    Label,
    Limits,
    Round,
    RoundEvent,
    StatementReport,
    Training,
)
from annotation.quality.limits import limits_sentence
from evaluation.evidence.arrays import Conduct, Evidence, ExcludedJudgments, StratumKey
from kgharvest.harvests.cuts import parse_cut
from kgharvest.models import HarvestedTuple, HarvestJob, JobPrompt, KnowledgeTuple, ProjectMember
from kgharvest.statistics.arrays import LABELS

DESIGN = (
    "judgments_per_task", "third_only_if_split", "quorum", "layout", "batch_size", "gold_share", "training_size",
    "max_per_annotator", "dominance_cap", "takes_guests", "include_sensitive", "closes_when", "seed",
)  # fmt: skip
NOT_IN_TIMELINE = ("joined", "adjudicated", "place_completed", "place_left")  # one a person or statement; counted
SUPERUSER = "superuser"
FORMER_MEMBER = "former member"

BY_LENGTH = ("top", "share")  # cuts that the length of a harvest decides alone
HARVEST = ("job", "origin", "revision", "dtype", "device", "harvested_at", "code_version", "harvested")
FRAME = ("cut", "kept", "left_out", "hidden", "sensitive", "population")
Ranks = dict[int, list[int]]  # by job
Roles = Mapping[int | None, str | None]  # by a user's id; None: the system or the operator, who has no account


def gather_conduct(round: Round, evidence: Evidence) -> Conduct:
    """evidence: the round's, gathered at the same moment."""
    events = list(round.events.exclude(kind__in=NOT_IN_TIMELINE).select_related("annotator").order_by("at", "pk"))
    exclusions = list(Exclusion.objects.filter(annotator__round=round).select_related("annotator").order_by("pk"))
    roles = _roles(round, [event.by_id for event in events], exclusions)
    judgments = Judgment.objects.not_withdrawn().filter(annotator__round=round).order_by("annotator")
    judged = list(judgments.values("annotator").annotate(**JUDGED, first=Min("judged_at"), last=Max("judged_at")))
    jobs = {stratum.job for stratum in evidence.strata if stratum.job}
    entry = {
        "dates": {
            "created_at": _iso(round.created_at),
            "opened_at": _iso(round.opened_at),
            "first_judgment_at": _iso(min((row["first"] for row in judged), default=None)),
            "last_judgment_at": _iso(max((row["last"] for row in judged), default=None)),
            "closed_at": _iso(round.closed_at),
        },
        "design": {name: getattr(round, name) for name in DESIGN} | {"has_consent": bool(round.consent)},
        "limits": _limits(round),
        "people": _people(round, judged, events),
        "training": _training(round),
        "gold": _gold(round),
        "judgments": {
            **{name: sum(row[name] for row in judged) for name in JUDGED},
            "n_skipped": Assignment.objects.skipped().filter(annotator__round=round).count(),
            "n_reports": StatementReport.objects.filter(annotator__round=round).count(),
        },
        "adjudications": _adjudications(round),
        "exclusions": [_exclusion(exclusion, roles) for exclusion in exclusions],
        "imports": [_import(event) for event in events if event.kind == "imported"],
        "timeline": [_line(event, roles) for event in events],
        "cells": cell_entries(evidence, _sampled_from(round, jobs)),
    }
    return Conduct(entry, _excluded_judgments(round))


def _iso(at: datetime | None) -> str | None:
    return at.isoformat(timespec="seconds") if at else None


def _roles(round: Round, users: Iterable[int | None], exclusions: Iterable[Exclusion]) -> Roles:
    """Return what each user is in the round's project: names stay out of reports."""
    decided = [user for exclusion in exclusions for user in (exclusion.excluded_by_id, exclusion.reinstated_by_id)]
    ids = {user for user in (*users, *decided) if user is not None}
    superusers = get_user_model().objects.filter(pk__in=ids, is_superuser=True).values_list("pk", flat=True)
    members = ProjectMember.objects.filter(project=round.project_id, user__in=ids).values_list("user", "role")
    known = dict.fromkeys(superusers, SUPERUSER) | dict(members)
    return {user: known.get(user, FORMER_MEMBER) for user in ids} | {None: None}


# -- people and judgments ----------------------------------------------------------------------------------------------

OTHERS = Q(superseded_by=None, task__is_gold=False)
JUDGED = {
    "n_given": Count("pk"),
    "n_superseded": Count("pk", filter=Q(superseded_by__isnull=False)),
    "n_gold": Count("pk", filter=Q(superseded_by=None, task__is_gold=True)),
    "n_counted": Count("pk", filter=OTHERS & Q(is_counted=True)),
    "n_excluded": Count("pk", filter=OTHERS & Q(is_excluded=True)),
    "n_late": Count("pk", filter=OTHERS & Q(is_counted=False, is_excluded=False)),
}


def _people(round: Round, judged: Sequence[Mapping[str, Any]], events: Iterable[RoundEvent]) -> dict[str, int]:
    annotators = round.annotators.values_list("status", "trained_at", "n_judged")
    return {
        "n_invited": round.invites.count(),
        "n_judged": len(judged),
        "n_counted": sum(row["n_counted"] > 0 for row in judged),
        "n_blocked_by_limits": len({event.annotator_id for event in events if event.kind == "limit_crossed"}),
        **annotator_counts(((status, at is not None, n) for status, at, n in annotators), round.quota),
    }


def annotator_counts(annotators: Iterable[tuple[str, bool, int]], quota: int | None) -> dict[str, int]:
    """Count annotators by status, training and number of judgments. annotators: status, is_trained, n_judged."""
    annotators = list(annotators)
    statuses = Counter(status for status, *_ in annotators)
    return {
        "n_joined": len(annotators),
        "n_trained": sum(is_trained is True for _, is_trained, _ in annotators),
        "n_excluded": statuses[Annotator.Status.EXCLUDED],
        "n_paused": statuses[Annotator.Status.PAUSED],
        "n_with_full_share": sum(quota is not None and n_judged >= quota for *_, n_judged in annotators),
    }


def _adjudications(round: Round) -> dict[str, int]:
    is_current = Q(superseded_by=None)
    return Adjudication.objects.filter(task__round=round).aggregate(
        n_statements=Count("pk", filter=is_current),
        n_superseded=Count("pk", filter=~is_current),
        n_blind=Count("pk", filter=is_current & Q(is_blind=True)),
        n_experts=Count("by", filter=is_current, distinct=True),
    )


def _limits(round: Round) -> dict[str, Any]:
    """Return the limits in force; who set which ones when is in the timeline."""
    limits = Limits.objects.filter(round=round).first() or Limits()
    return {name: getattr(limits, name) for name in Limits.OPTIONS} | {"sentence": limits_sentence(limits)}


def _training(round: Round) -> dict[str, int]:
    """Return how the training went: nobody fails it, but who answered what is known."""
    is_finished = Q(finished_at__isnull=False)
    trainings = Training.objects.filter(annotator__round=round).aggregate(
        n_begun=Count("annotator", distinct=True),
        n_finished=Count("annotator", filter=is_finished, distinct=True),
        n_answered=Sum("n_answered", filter=is_finished, default=0),
        n_right=Sum("n_right", filter=is_finished, default=0),
    )
    return {"n_statements": round.training_statements.count(), **trainings}


def _gold(round: Round) -> dict[str, Any]:
    """True gold is seed tuples, false gold corrupted ones that people confirmed: how many people, and when."""
    gold = round.tasks.gold()
    labels = dict(gold.order_by().values_list("gold_label").annotate(n=Count("pk")))
    false = gold.filter(gold_label=Label.FALSE)
    confirmed = GoldDecision.objects.filter(
        is_confirmed=True,
        relation__in=false.values("knowledge_tuple__relation"),
        key__in=false.values("knowledge_tuple__key"),
    ).aggregate(n=Count("decided_by", distinct=True), first=Min("decided_at"), last=Max("decided_at"))
    return {
        "n_true": labels.get(Label.TRUE, 0),
        "n_false": labels.get(Label.FALSE, 0),
        "n_confirmed_by": confirmed["n"],
        "confirmed_from": _iso(confirmed["first"]),
        "confirmed_to": _iso(confirmed["last"]),
    }


# -- what people decided -----------------------------------------------------------------------------------------------


def _exclusion(exclusion: Exclusion, roles: Roles) -> dict[str, Any]:
    return {
        "annotator": exclusion.annotator.code,
        "at": _iso(exclusion.excluded_at),
        "by": roles[exclusion.excluded_by_id],
        "reason": exclusion.reason,
        "n_judgments": exclusion.n_judgments,
        "reinstated_at": _iso(exclusion.reinstated_at),
        "reinstated_by": roles[exclusion.reinstated_by_id],
        "n_counted_again": exclusion.n_counted_again,
        "n_left_out": exclusion.n_left_out,
    }


def _excluded_judgments(round: Round) -> dict[str, ExcludedJudgments]:
    """Return what excluded annotators had said that counted, by their codes."""
    excluded = round.annotators.filter(status=Annotator.Status.EXCLUDED)
    counted = Judgment.objects.current().not_withdrawn().filter(is_excluded=True, task__is_gold=False)
    given = list(counted.filter(annotator__in=excluded).order_by().values_list("annotator__code", "task", "label"))
    tasks = round.tasks.without_gold().order_by("position").values_list("pk", flat=True) if given else ()
    number = {pk: position for position, pk in enumerate(tasks)}
    return excluded_judgments((code, number[task], label) for code, task, label in given)


def excluded_judgments(given: Iterable[tuple[str, int, str]]) -> dict[str, ExcludedJudgments]:
    """given: annotator, number of the statement from 0, label."""
    said: dict[str, list[tuple[int, int]]] = {}
    for code, task, label in given:
        said.setdefault(code, []).append((task, LABELS.index(label)))
    return {code: ExcludedJudgments(*np.array(own, dtype=np.int64).T) for code, own in said.items()}


def _import(event: RoundEvent) -> dict[str, Any]:
    names = ("file", "n_rows", "n_judgments", "duplicates", "n_duplicates")
    return {"at": _iso(event.at), **{name: event.details.get(name) for name in names}}


def _line(event: RoundEvent, roles: Roles) -> dict[str, Any]:
    code = event.annotator.code if event.annotator else None
    return {
        "at": _iso(event.at),
        "kind": event.kind,
        "by": roles[event.by_id],
        "annotator": code,
        "what": event.sentence,
    }


# Sampling frames


class SampledFrom(NamedTuple):
    """A harvest that cells were drawn from.

    made: the keys of HARVEST. hidden, sensitive: ranks that curation leaves out now. prompts: largest weights first.
    """

    made: Mapping[str, Any]
    cut: str
    hidden: Sequence[int]
    sensitive: Sequence[int]
    prompts: Sequence[Mapping[str, Any]]


def _sampled_from(round: Round, ids: Collection[int]) -> dict[int, SampledFrom]:
    cuts = dict(round.strata.exclude(job=None).values_list("job", "cut"))
    prompts: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    columns = ("job", "prompt__text", "prompt__origin", "weight")
    for job, text, origin, weight in JobPrompt.objects.filter(job__in=ids).values_list(*columns):
        prompts[job].append({"text": text, "origin": origin, "weight": weight})
    is_hidden = Q(curation=KnowledgeTuple.Curation.HIDDEN)
    hidden = _ranks(ids, KnowledgeTuple.objects.filter(is_hidden))
    shown_sensitive = KnowledgeTuple.objects.filter(~is_hidden, is_sensitive=True)
    sensitive = {} if round.include_sensitive else _ranks(ids, shown_sensitive)
    jobs = HarvestJob.objects.select_related("language_model").in_bulk(ids)
    return {
        pk: SampledFrom(harvest_entry(job), cuts[pk], hidden.get(pk, []), sensitive.get(pk, []), prompts[pk])
        for pk, job in jobs.items()
    }


def _ranks(ids: Collection[int], tuples: QuerySet[KnowledgeTuple]) -> Ranks:
    """tuples: few, found by a partial index."""
    harvested = HarvestedTuple.objects.filter(job__in=ids, knowledge_tuple__in=tuples.values("pk"))
    ranks: Ranks = defaultdict(list)
    for job, rank in harvested.order_by().values_list("job", "rank"):
        ranks[job].append(rank)
    return ranks


def cell_entries(evidence: Evidence, harvests: Mapping[int, SampledFrom]) -> list[dict[str, Any]]:
    """Return an entry per cell, in the order of the evidence: `cells` of `conduct` in docs/report-json.md."""
    n_drawn = np.bincount(evidence.draws.stratum, minlength=len(evidence.strata)).tolist()
    strata: list[list[StratumKey]] = [[] for _ in evidence.cells]
    drawn = [0] * len(evidence.cells)
    for stratum, n in zip(evidence.strata, n_drawn, strict=True):
        strata[stratum.cell].append(stratum)
        drawn[stratum.cell] += n
    entries = []
    for key, own, n in zip(evidence.cells, strata, drawn, strict=True):
        known, prompts = dict.fromkeys((*HARVEST, *FRAME)), ()
        if (job := own[0].job) is not None:
            harvest = harvests[job]
            known, prompts = {**harvest.made, **_frame_entry(harvest, own)}, harvest.prompts
        entries.append({
            **key._asdict(), **known, "n_strata": len(own), "drawn": n, "n_prompts": len(prompts),
            "prompts": list(prompts),
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


def _frame_entry(harvest: SampledFrom, strata: Sequence[StratumKey]) -> dict[str, Any]:
    """Return how many tuples of the harvest could be drawn, and how many the cut and curation left out."""
    population = sum(stratum.population or 0 for stratum in strata)
    kept = n_kept(harvest.made["harvested"], harvest.cut, max(stratum.rank_to or 0 for stratum in strata))
    return {
        "cut": harvest.cut or None,
        "kept": kept,
        "left_out": kept - population,
        "hidden": sum(rank <= kept for rank in harvest.hidden),
        "sensitive": sum(rank <= kept for rank in harvest.sensitive),
        "population": population,
    }


def n_kept(n_tuples: int, cut: str, last_rank: int) -> int:
    """Return how many tuples the cut keeps; where scores decide that, up to the last rank that was drawn from."""
    if not cut:
        return n_tuples
    parsed = parse_cut(cut)
    return parsed.size(range(n_tuples)) if parsed.kind in BY_LENGTH else last_rank
