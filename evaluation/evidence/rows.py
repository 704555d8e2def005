"""Read the rows of a round from the database as columns (evaluation.evidence.tables), with a few queries.

Reports, evidence pages, and replication packages use these rows. A replication package removes ids, hidden texts, and
names when it writes its files.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from math import log
from operator import attrgetter
from typing import Any

import numpy as np
from django.contrib.auth import get_user_model
from django.db.models import (
    Case,
    Count,
    F,
    FloatField,
    IntegerField,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    When,
)
from numpy.typing import NDArray

from annotation.judges.labels import LABEL_WORDS, check_one_judge
from annotation.judges.models import JudgeRun
from annotation.models import (
    Adjudication,
    Assignment,
    Draw,
    Exclusion,
    GoldDecision,
    Judgment,
    Label,
    Limits,
    Round,
    StatementReport,
    Stratum,
    Training,
)
from evaluation.evidence.evidence import BASES, HARVEST, Evidence, evidence_of_rows, n_kept
from evaluation.evidence.tables import (
    COUNTED,
    EMPTY,
    EXCLUDED,
    GOLD,
    HIDDEN,
    LATE,
    SENSITIVE,
    SUPERSEDED,
    Columns,
    report_order,
)
from kgharvest.models import (
    HarvestedTuple,
    HarvestJob,
    JobPrompt,
    KnowledgeTuple,
    LanguageModel,
    ProjectMember,
    Relation,
)
from kgharvest.statistics.arrays import LABELS, VERDICTS, Codes
from kgharvest.statistics.paired_tests import CellKey

ROWS_AT_ONCE = 50_000

PROMPT = {
    "harvest": "job",
    "text": "prompt__text",
    "origin": "prompt__origin",
    "weight": "weight",
    "compatibility": "compatibility",
}

Cells = Mapping[CellKey, Sequence[Stratum]]


def gather_evidence(round: Round) -> Evidence:
    return evidence_of_rows(rows_of_round(round), rules_of_round(round))


def rows_of_round(round: Round, judge: JudgeRun | None = None, *, for_files: bool = False) -> dict[str, Columns]:
    """Return the columns of every table. Raises SeveralJudges.

    judge: the run that the report uses; if None, the tables of judges are empty. for_files: include the tuples
    of all harvests, and the columns that only files contain.
    """
    cells = cells_with_strata(round)
    strata = [stratum for of_cell in cells.values() for stratum in of_cell]
    relations = {stratum.relation_id: key.relation for key, of_cell in cells.items() for stratum in of_cell}
    tasks, statements = _statement_rows(round, relations, for_files)
    annotators = list(round.annotators.order_by("code").values_list("pk", "code", "status", "trained_at", "n_judged"))
    ids, codes, statuses, trained_at, n_judged = zip(*annotators, strict=True) if annotators else [()] * 5
    harvests = harvest_rows(cells, for_files=for_files)
    jobs = harvests["harvest"]
    place = {job: number for number, job in enumerate(jobs)}
    prompts = JobPrompt.objects.filter(job__in=jobs).values_list(*PROMPT.values())  # largest weights first
    by_harvest = sorted(prompts, key=lambda prompt: place[prompt[0]])
    draws, clusters = _draw_rows(round, tasks, np.array([stratum.pk for stratum in strata], WHOLE), for_files)
    rows: dict[str, Columns] = {
        "statements": statements,
        "judgments": _judgment_rows(round, tasks, ~statements["is_gold"], np.array(ids, WHOLE), for_files),
        "annotators": {
            "annotator": codes,
            "status": statuses,
            "is_trained": [at is not None for at in trained_at],
            "n_judged": n_judged,
        },
        "strata": stratum_rows(cells),
        "draws": draws,
        "clusters": clusters,
        "harvests": harvests | _curated_ranks(round, jobs),
        "prompts": {name: [prompt[number] for prompt in by_harvest] for number, name in enumerate(PROMPT)},
        "harvested": _harvested_rows(round, harvests) if judge or for_files else {},
    }
    return rows | (judge_rows(round, judge, for_files=for_files) if judge else {"judge_runs": {}, "judge_answers": {}})


# Columns


WHOLE, FLOAT, FLAG = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.bool_)  # FLOAT converts None to NaN
Kind = np.dtype | tuple[str, ...]


def _columns(rows: QuerySet, **fields: Kind) -> list[NDArray]:
    """Return one array per field: values of its data type, or codes if its kind is a tuple of names.

    Rows are read in chunks to limit memory.
    """
    values = rows.values_list(*fields).iterator(ROWS_AT_ONCE)
    pieces: list[list[NDArray]] = [
        [np.zeros(0, WHOLE if isinstance(kind, tuple) else kind) for kind in fields.values()]
    ]
    while piece := list(islice(values, ROWS_AT_ONCE)):
        pieces.append([
            coded(column, kind) if isinstance(kind, tuple) else np.array(column, dtype=kind)
            for kind, column in zip(fields.values(), zip(*piece, strict=True), strict=True)
        ])  # fmt: skip
    return [np.concatenate(column) for column in zip(*pieces, strict=True)]


def coded(values: Sequence[str | None], names: Sequence[str]) -> Codes:
    """Return the position of each value in `names`, or EMPTY for None and "". Raises KeyError for unknown values."""
    codes = {name: code for code, name in enumerate(names)} | {None: EMPTY, "": EMPTY}
    return np.fromiter(map(codes.__getitem__, values), dtype=np.int64, count=len(values))


def _positions(ids: Codes, among: Codes) -> Codes:
    """Return the position of each of the ids in `among`. `among` must contain all ids."""
    order = np.argsort(among, kind="stable")
    return order[np.searchsorted(among, ids, sorter=order)]


# Statements and judgments


def _statement_rows(round: Round, relations: Mapping[int, str], for_files: bool) -> tuple[Codes, Columns]:
    """Return the ids of the tasks and the rows of their statements, with gold statements last."""
    tasks, tuples, is_gold, gold_label, n_wanted, verdict = _columns(
        round.tasks.order_by("is_gold", "position"),
        pk=WHOLE,
        knowledge_tuple_id=WHOLE,
        is_gold=FLAG,
        gold_label=LABELS,
        n_wanted=WHOLE,
        verdict=VERDICTS,
    )
    words = Adjudication.objects.current().filter(task__round=round).order_by()
    adjudicated, label = _columns(words, task_id=WHOLE, label=LABELS)
    adjudication = np.full(len(tasks), EMPTY)
    adjudication[_positions(adjudicated, tasks)] = label
    statements = {
        "statement": np.arange(1, len(tasks) + 1),
        "tuple": tuples,
        "is_gold": is_gold,
        "gold_label": gold_label,
        "n_wanted": n_wanted,
        "verdict": verdict,
        "adjudication": adjudication,
    }
    if for_files:
        fields = ("knowledge_tuple__relation", "knowledge_tuple__relation__name", "entities", "statement")
        texts = round.tasks.order_by("is_gold", "position").values_list(*fields, "knowledge_tuple__curation")
        texts = list(texts.iterator(ROWS_AT_ONCE))
        is_shown = [curation != KnowledgeTuple.Curation.HIDDEN for *_, curation in texts]
        statements |= {
            "relation": [relations.get(relation, name) for relation, name, *_ in texts],
            "entities": [as_json(row[2]) if shown else None for row, shown in zip(texts, is_shown, strict=True)],
            "text": [row[3] if shown else None for row, shown in zip(texts, is_shown, strict=True)],
        }
    return tasks, statements


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


STATUS = Case(
    When(superseded_by__isnull=False, then=SUPERSEDED),
    When(is_counted=True, then=COUNTED),
    When(is_excluded=True, then=EXCLUDED),
    default=LATE,
    output_field=IntegerField(),
)


def _judgment_rows(
    round: Round, tasks: Codes, counts_in_rates: NDArray[np.bool_], annotators: Codes, for_files: bool
) -> Columns:
    """Return the judgments sorted by statement.

    The judgments of a statement are also sorted by time if files are written, or to find third judgments.

    Gold judgments have the status GOLD unless superseded.
    """
    judgments = Judgment.objects.not_withdrawn().filter(task__round=round).annotate(status=STATUS)
    in_order = judgments.order_by(*(("judged_at", "client_uuid") if for_files or round.third_only_if_split else ()))
    fields = {"task_id": WHOLE, "annotator_id": WHOLE, "label": LABELS, "seconds": FLOAT, "status": WHOLE}
    task, annotator, *columns = _columns(in_order, **fields, **({"judged_at": np.dtype(object)} if for_files else {}))
    position = _positions(task, tasks)
    order = np.argsort(position, kind="stable")
    position, annotator = position[order], _positions(annotator, annotators)[order]
    label, seconds, status, *judged_at = (column[order] for column in columns)
    status[~counts_in_rates[position] & (status != SUPERSEDED)] = GOLD
    rows = {"statement": position + 1, "annotator": annotator, "label": label, "seconds": seconds, "status": status}
    return rows | dict(zip(["judged_at"], judged_at, strict=False))


# Samples


def cells_with_strata(round: Round) -> dict[CellKey, list[Stratum]]:
    """Return the cells in report order, with their strata sorted by rank."""
    return cells_of_strata(round.strata.sampled().order_by("rank_from", "pk"))


def cells_of_strata(strata: Iterable[Stratum]) -> dict[CellKey, list[Stratum]]:
    """Return the cells in report order, with their strata in the given order."""
    strata = list(strata)
    relations = list(
        Relation.objects.filter(pk__in={stratum.relation_id for stratum in strata}).values_list(
            "pk", "name", "relation_set__name"
        )
    )
    n_relations = Counter(name for _, name, _ in relations)
    # A relation is named set/name if two sets of the round contain its name.
    names = {pk: name if n_relations[name] == 1 else f"{set_name}/{name}" for pk, name, set_name in relations}
    models = LanguageModel.objects.in_bulk({stratum.language_model_id for stratum in strata} - {None})
    model_names = {pk: str(model) for pk, model in models.items()}
    cells: defaultdict[CellKey, list[Stratum]] = defaultdict(list)
    for stratum in strata:
        model = model_names.get(stratum.language_model_id)
        cells[CellKey(names[stratum.relation_id], model, stratum.setting or None)].append(stratum)
    return {key: cells[key] for key in sorted(cells, key=report_order)}


def stratum_rows(cells: Cells) -> Columns:
    strata = [(key, stratum) for key, of_cell in cells.items() for stratum in of_cell]
    of_harvests = ("rank_from", "rank_to", "population")  # The population of a stratum without a harvest is unknown.
    return {
        "stratum": list(range(1, len(strata) + 1)),
        **{name: [getattr(key, name) for key, _ in strata] for name in CellKey._fields},
        "harvest": [stratum.job_id for _, stratum in strata],
        **{name: [stratum.job_id and getattr(stratum, name) for _, stratum in strata] for name in of_harvests},
        "judge_label": [(stratum.job_id and stratum.judge_label) or None for _, stratum in strata],
        "ranks": [
            None if stratum.job_id is None or stratum.ranks is None else as_json(stratum.ranks) for _, stratum in strata
        ],
    }


# Filters for draws. If a harvest has no scores, the negative rank is stored as the score.
IS_SCORED = ~Q(harvested_tuple__job__score_scale=HarvestJob.ScoreScale.ORDER)
OWN_SCORE = Case(When(IS_SCORED, then=F("harvested_tuple__score")), output_field=FloatField())


def _draw_rows(round: Round, tasks: Codes, strata: Codes, for_files: bool) -> tuple[Columns, Columns]:
    """Return the draws and their clusters, which are empty for simple random samples."""
    fields = {"task_id": WHOLE, "stratum_id": WHOLE, "harvested_tuple__rank": FLOAT, "own_score": FLOAT}
    draws = Draw.objects.filter(stratum__round=round).order_by().annotate(own_score=OWN_SCORE)
    fields |= {"inclusion_probability": FLOAT, **({"cluster": WHOLE} if round.cluster_size else {})}
    task, stratum, rank, score, probability, *cluster = _columns(draws, **fields)
    task, stratum = _positions(task, tasks), _positions(stratum, strata)
    order = np.lexsort((task, stratum))
    rows = {
        "stratum": stratum[order] + 1,
        "statement": task[order] + 1,
        "rank": np.nan_to_num(rank[order]).astype(np.int64),
        "score": score[order],
    }
    rows |= {"inclusion_probability": probability[order]} if for_files else {}
    columns = {"stratum": rows["stratum"], "statement": rows["statement"]}
    return rows, columns | {"cluster": cluster[0][order]} if cluster else {}


# Harvests


# The cut base:k requires one of these score scales.
LOGARITHMS = (HarvestJob.ScoreScale.NATS, HarvestJob.ScoreScale.LOG_SHARE)
NOT_PARAMETERS = ("device", "dtype")  # these parameters have their own columns


def harvest_rows(cells: Cells, *, for_files: bool = False) -> dict[str, Any]:
    """Return the sampled harvests. kept_by_base: number of tuples in the cut base:k, by k.

    This number is known for harvests with at least k tuples and logarithmic scores.
    """
    by_rank = sorted((s for strata in cells.values() for s in strata if s.job_id), key=attrgetter("rank_to", "pk"))
    last = {stratum.job_id: stratum for stratum in by_rank}
    relations = {stratum.relation_id: key.relation for key, strata in cells.items() for stratum in strata}
    jobs = HarvestJob.objects.select_related("language_model", "relation").in_bulk(last).values()
    jobs = sorted(jobs, key=lambda job: (job.language_model.name, job.setting, job.relation.name, last[job.pk].rank_to))
    made = [harvest_entry(job) for job in jobs]
    kept: dict[int, dict[int, int]] = {}
    for base in BASES:
        tuples = HarvestedTuple.objects.filter(job__in=last, job__score_scale__in=LOGARITHMS)
        kth = HarvestedTuple.objects.filter(job=OuterRef("job"), rank=base).values("score")[:1]
        of_base = tuples.annotate(kth=Subquery(kth)).filter(score__gte=F("kth") + log(0.1)).order_by()
        kept[base] = dict(of_base.values_list("job").annotate(n=Count("pk")))
    rows: dict[str, Any] = {
        "harvest": [job.pk for job in jobs],
        "fingerprint": [job.fingerprint for job in jobs],
        "relation": [relations.get(job.relation_id, job.relation.name) for job in jobs],
        "model": [str(job.language_model) for job in jobs],
        "setting": [job.setting or None for job in jobs],
        **{name: [entry[name] for entry in made] for name in HARVEST},
        "n_tuples": [job.n_tuples for job in jobs],
        "score_scale": [job.score_scale for job in jobs],
        "cut": [last[job.pk].cut or None for job in jobs],
        "last_rank": [last[job.pk].rank_to for job in jobs],
        "kept_by_base": [{base: sizes[job.pk] for base, sizes in kept.items() if job.pk in sizes} for job in jobs],
    }
    return rows | ({"parameters": [as_json(_parameters(job)) for job in jobs]} if for_files else {})


def harvest_entry(job: HarvestJob) -> dict[str, Any]:
    """Return the provenance of a harvest. For an imported harvest, this is only the time when it was stored."""
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


def _parameters(job: HarvestJob) -> dict[str, Any]:
    """Return the parameters without the paraphraser's URL, which can reveal a private network or an account."""
    parameters = {name: value for name, value in job.payload.items() if name not in NOT_PARAMETERS}
    if "spec" in parameters:
        paraphraser = dict(parameters["spec"].get("paraphraser", {}))
        paraphraser.pop("base_url", None)
        parameters["spec"] = {**parameters["spec"], "paraphraser": paraphraser}
    return parameters


def _curated_ranks(round: Round, jobs: Collection[int]) -> Columns:
    """Return, for each harvest, the ranks of tuples that curation excludes from samples.

    Partial indexes find these few tuples.
    """
    is_hidden = Q(curation=KnowledgeTuple.Curation.HIDDEN)
    shown_sensitive = ~is_hidden & Q(is_sensitive=True)
    columns = {}
    for name, condition in (("hidden", is_hidden), ("sensitive", None if round.include_sensitive else shown_sensitive)):
        ranks: defaultdict[int, list[int]] = defaultdict(list)
        if condition is not None:
            tuples = KnowledgeTuple.objects.filter(condition).values("pk")
            harvested = HarvestedTuple.objects.filter(job__in=jobs, knowledge_tuple__in=tuples).order_by()
            for job, rank in harvested.values_list("job", "rank"):
                ranks[job].append(rank)
        columns[name] = [ranks[job] for job in jobs]
    return columns


def _harvested_rows(round: Round, harvests: Columns) -> Columns:
    """Return the tuples in the cut or the population, and the next tuple, which marks the end of the cut base:k."""
    names = ("harvest", "n_tuples", "cut", "last_rank", "score_scale")
    last_rank, is_scored = {}, {}
    for job, n_tuples, cut, last, scale in zip(*(harvests[name] for name in names), strict=True):
        last_rank[job] = max(n_kept(n_tuples, cut or "", last), last + 1)
        is_scored[job] = scale != HarvestJob.ScoreScale.ORDER
    tuples = HarvestedTuple.objects.filter(job__in=last_rank, rank__lte=max(last_rank.values(), default=0))
    job, rank, number, score, curation, is_sensitive = _columns(
        tuples.order_by("job", "rank"),
        job_id=WHOLE,
        rank=WHOLE,
        knowledge_tuple_id=WHOLE,
        score=FLOAT,
        knowledge_tuple__curation=tuple(KnowledgeTuple.Curation.values),
        knowledge_tuple__is_sensitive=FLAG,
    )
    place = _positions(job, np.array(list(last_rank), WHOLE))
    order = np.argsort(place, kind="stable")
    order = order[rank[order] <= np.array(list(last_rank.values()), WHOLE)[place[order]]]
    is_left_out = is_sensitive & (not round.include_sensitive)
    is_hidden = curation == KnowledgeTuple.Curation.values.index(KnowledgeTuple.Curation.HIDDEN)
    left_out = np.where(is_hidden, HIDDEN, np.where(is_left_out, SENSITIVE, EMPTY))
    score = np.where(np.array(list(is_scored.values()), FLAG)[place], score, np.nan)
    names = ("harvest", "rank", "tuple", "score", "left_out")
    columns = (job, rank, number, score, left_out)
    return {name: column[order] for name, column in zip(names, columns, strict=True)}


# Judges


def judge_rows(round: Round, judge: JudgeRun, *, for_files: bool = False) -> dict[str, Columns]:
    """Return the tables of judge runs and their answers, with the run `judge` first. Raises SeveralJudges.

    URLs are omitted because they can reveal a private network; `differs` shows whether they differ.
    """
    check_one_judge(judge)
    runs = [judge, *round.judge_runs.exclude(pk=judge.pk).order_by("name")]
    optional = ("revision", "prompt", "panel")
    names = ("name", "model", "prompt_sha256", "temperature", "seed", "repeats", "threshold")
    of_runs: Columns = {
        "run": list(range(1, len(runs) + 1)),
        "kind": [run.judge_kind for run in runs],
        **{name: [getattr(run, name) for run in runs] for name in names},
        **{name: [getattr(run, name) or None for run in runs] for name in optional},
        "differs": [as_json(differences(judge, run)) for run in runs],
    }
    fields = {"knowledge_tuple_id": WHOLE, "label": LABELS, "score": FLOAT}
    columns: list[list[NDArray]] = []
    for number, run in enumerate(runs, start=1):
        answers = run.answers.order_by("knowledge_tuple", "repeat")
        of_run = _columns(answers, **fields, **({"repeat": WHOLE} if for_files else {}))
        columns.append([np.full(len(of_run[0]), number), *of_run])
    answer = ("run", "tuple", "label", "score", "repeat")
    answers = {name: np.concatenate(parts) for name, parts in zip(answer, zip(*columns, strict=True), strict=False)}
    return {"judge_runs": of_runs, "judge_answers": answers}


DIFFERENCES = {
    "model": "LM",
    "revision": "revision",
    "dtype": "number format",
    "judge_kind": "kind",
    "base_url": "address",
    "temperature": "temperature",
    "seed": "seed",
    "repeats": "repeats",
    "threshold": "threshold",
}
WORDING, ORDER_OF_LABELS = "wording of the prompt", "order of the labels"
TEXTS = {"instructions": "instructions", "examples": "examples"}  # texts about each relation in prompts
ORDER_OF_EXAMPLES = "order of the examples"


def differences(run: JudgeRun, other: JudgeRun) -> list[str]:
    """Return the options that differ between two runs. For prompt options, the resulting prompts are compared."""
    differs = [word for name, word in DIFFERENCES.items() if getattr(run, name) != getattr(other, name)]
    if run.prompt_sha256 != other.prompt_sha256:
        parts_a, parts_b = (LABEL_WORDS.split(prompt.lower()) for prompt in (run.prompt, other.prompt))
        # The labels are at the odd positions.
        is_order = parts_a[::2] == parts_b[::2] and sorted(parts_a[1::2]) == sorted(parts_b[1::2])
        differs.append(ORDER_OF_LABELS if is_order and run.prompt != other.prompt else WORDING)
    relations = run.relation_texts.keys() & other.relation_texts.keys()
    for name, word in TEXTS.items():
        texts_a, texts_b = (
            [texts[relation].get(name, "") for relation in relations]
            for texts in (run.relation_texts, other.relation_texts)
        )
        if texts_a != texts_b:
            sorted_a, sorted_b = ([sorted(text.split("\n\n")) for text in texts] for texts in (texts_a, texts_b))
            differs.append(ORDER_OF_EXAMPLES if name == "examples" and sorted_a == sorted_b else word)
    return differs


# Rules and conduct


DESIGN = (
    "judgments_per_task", "third_only_if_split", "quorum", "layout", "batch_size", "gold_share", "training_size",
    "max_per_annotator", "dominance_cap", "takes_guests", "include_sensitive", "closes_when", "seed",
    "cluster_size",
)  # fmt: skip
NOT_IN_TIMELINE = (
    "joined",
    "adjudicated",
    "place_completed",
    "place_left",
)  # events that are counted, because there are too many to list
SUPERUSER = "superuser"
FORMER_MEMBER = "former member"


def rules_of_round(round: Round) -> dict[str, Any]:
    """Return the verdict rules of the round, its name, and its demonstrators."""
    closed = round.events.filter(action="round.closed").first() if round.closed_at else None
    demonstrators = LanguageModel.objects.filter(strata__round=round, is_demonstrator=True).distinct()
    return {
        "round": round.name,
        "source": round.source,
        "seed": round.seed,
        "judgments_per_task": round.judgments_per_task,
        "quorum": round.quorum,
        "has_thirds": round.third_only_if_split,
        "demonstrators": sorted(map(str, demonstrators)),
        "least_k": round.least_k,
        "quota": round.quota,
        # Rounds that closed before there were fixed-width intervals, or were closed by people, have none.
        "closed_at_half_width": closed and closed.known_facts.get("half_width"),
    }


def noise_warnings(round: Round) -> list[dict[str, Any]]:
    """Return the warnings of harvests that are probably noise, with their cells named as in the report."""
    noisy = round.noisy_harvests().in_bulk()
    cells = cells_with_strata(round).items() if noisy else ()
    return [key._asdict() | noisy[strata[0].job_id].noise_warning for key, strata in cells if strata[0].job_id in noisy]


def conduct_facts(round: Round) -> dict[str, Any]:
    """Return the parts of `conduct` (docs/report-json.md) that no row contains: rules, dates, and the log."""
    events = list(round.events.exclude(kind__in=NOT_IN_TIMELINE).order_by("at", "pk"))
    exclusions = list(Exclusion.objects.filter(annotator__round=round).select_related("annotator").order_by("pk"))
    users = {event.by_id for event in events} - {None}
    for exclusion in exclusions:
        users |= {exclusion.excluded_by_id, exclusion.reinstated_by_id} - {None}
    # Reports contain roles instead of user names. The role None stands for the system, or for the operator, who has no
    # account.
    superusers = get_user_model().objects.filter(pk__in=users, is_superuser=True).values_list("pk", flat=True)
    members = ProjectMember.objects.filter(project=round.project_id, user__in=users).values_list("user", "role")
    roles: dict[int | None, str | None] = dict.fromkeys(users, FORMER_MEMBER) | dict.fromkeys(superusers, SUPERUSER)
    roles |= dict(members) | {None: None}
    judgments = Judgment.objects.not_withdrawn().filter(annotator__round=round)
    judged = judgments.aggregate(first=Min("judged_at"), last=Max("judged_at"))
    limits = Limits.objects.filter(round=round).first() or Limits()
    is_finished = Q(finished_at__isnull=False)
    trainings = Training.objects.filter(annotator__round=round).aggregate(
        n_begun=Count("annotator", distinct=True),
        n_finished=Count("annotator", filter=is_finished, distinct=True),
        n_answered=Sum("n_answered", filter=is_finished, default=0),
        n_right=Sum("n_right", filter=is_finished, default=0),
    )
    # False gold statements are corrupted tuples that people confirmed.
    false = round.tasks.gold().filter(gold_label=Label.FALSE)
    decisions = GoldDecision.objects.of(round.project_id)
    confirmed = decisions.filter(
        is_confirmed=True,
        relation__in=false.values("knowledge_tuple__relation"),
        key__in=false.values("knowledge_tuple__key"),
    ).aggregate(n=Count("decided_by", distinct=True), first=Min("decided_at"), last=Max("decided_at"))
    is_current = Q(superseded_by=None)
    adjudications = Adjudication.objects.filter(task__round=round).aggregate(
        n_superseded=Count("pk", filter=~is_current),
        n_blind=Count("pk", filter=is_current & Q(is_blind=True)),
        n_experts=Count("by", filter=is_current, distinct=True),
    )
    imported = ("file", "n_rows", "n_judgments", "duplicates", "n_duplicates")
    return {
        "dates": {
            "created_at": _iso(round.created_at),
            "opened_at": _iso(round.opened_at),
            "first_judgment_at": _iso(judged["first"]),
            "last_judgment_at": _iso(judged["last"]),
            "closed_at": _iso(round.closed_at),
        },
        "design": {name: getattr(round, name) for name in DESIGN} | {"has_consent": bool(round.consent)},
        "noise_warnings": noise_warnings(round),
        "limits": {name: getattr(limits, name) for name in Limits.OPTIONS} | {"sentence": limits.sentence},
        "people": {"n_invited": round.invites.count()},
        "training": {"n_statements": round.training_statements.count(), **trainings},
        "gold": {
            "n_confirmed_by": confirmed["n"],
            "confirmed_from": _iso(confirmed["first"]),
            "confirmed_to": _iso(confirmed["last"]),
        },
        "judgments": {
            "n_skipped": Assignment.objects.skipped().filter(annotator__round=round).count(),
            "n_reports": StatementReport.objects.filter(annotator__round=round).count(),
        },
        "adjudications": adjudications,
        **({"answers": _answer_facts(round)} if round.asks_wrong_part or round.has_references else {}),
        "exclusions": [
            {
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
            for exclusion in exclusions
        ],
        "imports": [
            {"at": _iso(event.at), **{name: event.details.get(name) for name in imported}}
            for event in events
            if event.kind == "imported"
        ],
        "timeline": [
            {
                "at": _iso(event.at),
                "kind": event.kind,
                "by": roles[event.by_id],
                "annotator": event.annotator,
                "what": event.history_sentence,
            }
            for event in events
        ],
    }


def _answer_facts(round: Round) -> dict[str, Any]:
    """Return facts about the counted judgments: opened references, and the wrong parts by relation."""
    counted, relation = Judgment.objects.counted().filter(task__round=round), "task__knowledge_tuple__relation"
    n_false = dict(counted.filter(label=Label.FALSE).values_list(relation).annotate(Count("pk")))
    parts = counted.exclude(wrong_part="").values_list(relation, f"{relation}__name", "wrong_part")
    parts = parts.annotate(Count("pk")).order_by(f"{relation}__name", relation, "wrong_part")
    return {
        "n_with_references": counted.exclude(opened_reference=None).count(),
        "n_opened_reference": counted.filter(opened_reference=True).count(),
        "wrong_parts": [
            {"relation": name, "part": part, "n": n, "n_false": n_false[pk]} for pk, name, part, n in parts
        ],
    }


def _iso(at: datetime | None) -> str | None:
    return at.isoformat(timespec="seconds") if at else None
