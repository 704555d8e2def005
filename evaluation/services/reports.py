"""Freeze what a round says at one moment."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from django.db import connection, transaction
from django.db.models import Count, F, Q
from django.utils import timezone

from annotation.models import Draw, Judgment, Label, Round
from evaluation.comparisons import Side
from evaluation.documents import METHOD, AnnotatorPair, CellKey, Evidence, Pattern, VerdictCounts, build_document
from evaluation.models import Report
from kgharvest.models import LanguageModel, Relation
from kgharvest.version import code_version

PAPER_ORDER = ["human", "autoprompt", "top1", "multi"]  # of the settings in Table 5


def create_report(round: Round, by=None) -> Report:
    """Compute and store a report on the round as it is now: a function of its judgments and seed, but for the date."""
    now, version = timezone.now(), code_version()
    with one_moment():
        evidence = gather_evidence(round)
    document = build_document(evidence)
    stamp = {"created_at": now.isoformat(timespec="seconds"), "code_version": version, "method": METHOD}
    return Report.objects.create(
        round=round, document=document | stamp, method=METHOD, code_version=version, created_by=by, created_at=now
    )


@contextmanager
def one_moment() -> Iterator[None]:
    """Let all queries inside see the database as it is at one moment, while people go on judging."""
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield


def gather_evidence(round: Round) -> Evidence:
    tasks = round.tasks.without_gold()
    patterns, models = _patterns(tasks), _model_names(round)
    return Evidence(
        round=round.name,
        source=round.source,
        seed=round.seed,
        n_tasks=tasks.count(),
        n_complete=tasks.complete().count(),
        n_judgments=sum(sum(pattern[:3]) * pattern.n_tasks for pattern in patterns),
        cells=_cells(round, models),
        n_shared=_shared(round, models),
        patterns=patterns,
        annotators=_annotators(round),
        annotator_pairs=_annotator_pairs(round),
        demonstrators=_demonstrators(round),
    )


def _patterns(tasks) -> list[Pattern]:
    counters = ("n_true", "n_false", "n_unjudgeable")
    counted = tasks.order_by(*counters).values_list(*counters).annotate(n_tasks=Count("pk"))
    return [Pattern(*row) for row in counted]


def _model_names(round: Round) -> dict[int, str]:
    return {model.pk: str(model) for model in LanguageModel.objects.filter(strata__round=round).distinct()}


def _cells(round: Round, models: Mapping[int, str]) -> dict[CellKey, VerdictCounts]:
    """Return the verdicts of each cell's own draws, sorted by LM, setting and relation."""
    columns = ("stratum__relation", "stratum__language_model", "stratum__setting", "task__verdict")
    rows = Draw.objects.filter(stratum__round=round).order_by().values_list(*columns).annotate(n=Count("pk"))
    relations = _relation_names(row[0] for row in rows)
    cells: defaultdict[CellKey, VerdictCounts] = defaultdict(VerdictCounts)
    for relation, model, setting, verdict, n in rows:
        key = CellKey(relations[relation], models.get(model), setting or None)
        setattr(cells[key], verdict or "incomplete", n)
    return dict(sorted(cells.items(), key=lambda cell: _place(cell[0])))


def _place(key: CellKey) -> tuple[str, int, str, str]:
    """Sort settings as the paper's tables do, others after them by name."""
    place = PAPER_ORDER.index(key.setting) if key.setting in PAPER_ORDER else len(PAPER_ORDER)
    return key.model or "", place, key.setting or "", key.relation


def _shared(round: Round, models: Mapping[int, str]) -> dict[frozenset[Side], int]:
    """Return how many statements with a verdict two sides have both drawn, for each two that have."""
    one, other = "stratum__", "task__draws__stratum__"
    columns = (f"{one}language_model", f"{one}setting", f"{other}language_model", f"{other}setting")
    twice = Draw.objects.filter(stratum__round=round, task__draws__stratum__gt=F("stratum")).exclude(task__verdict="")
    rows = twice.order_by().values_list(*columns).annotate(n=Count("task", distinct=True))
    shared: Counter[frozenset[Side]] = Counter()
    for model, setting, other_model, other_setting, n in rows:
        sides = Side(models.get(model), setting or None), Side(models.get(other_model), other_setting or None)
        shared[frozenset(sides)] += n
    return dict(shared)


def _relation_names(ids: Iterable[int]) -> dict[int, str]:
    """Return the names of relations; set/name where two sets of one round use the same name."""
    relations = Relation.objects.filter(pk__in=set(ids)).select_related("relation_set")
    n_bearers = Counter(relation.name for relation in relations)
    return {relation.pk: relation.name if n_bearers[relation.name] == 1 else relation.path for relation in relations}


def _annotators(round: Round) -> dict[str, dict[str, int]]:
    counted = Judgment.objects.counted().filter(task__round=round, task__is_gold=False)
    rows = counted.order_by().values_list("annotator__code", "label").annotate(n=Count("pk"))
    labels: defaultdict[str, dict[str, int]] = defaultdict(lambda: {"n_judgments": 0} | dict.fromkeys(Label.values, 0))
    for code, label, n in rows:
        labels[code][label] = n
        labels[code]["n_judgments"] += n
    return dict(labels)


def _annotator_pairs(round: Round) -> list[AnnotatorPair]:
    counted = Judgment.objects.counted().filter(task__round=round, task__is_gold=False)
    other = "task__judgments__"
    shared = counted.filter(
        **{
            f"{other}annotator__code__gt": F("annotator__code"),
            f"{other}superseded_by": None,
            f"{other}is_counted": True,
        }
    )
    n_agreeing = Count("pk", filter=Q(label=F(f"{other}label")))
    columns = ("annotator__code", f"{other}annotator__code")
    rows = shared.order_by(*columns).values_list(*columns).annotate(n=Count("pk"), n_agreeing=n_agreeing)
    return [AnnotatorPair(*row) for row in rows]


def _demonstrators(round: Round) -> list[str]:
    used = LanguageModel.objects.filter(strata__round=round, is_demonstrator=True).distinct()
    return sorted(map(str, used))
