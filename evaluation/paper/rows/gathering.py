"""The raw rows that a report rests on, de-identified: what recomputes it, and nothing that leads back to a person.

People are under the pseudonyms of the round. Comments, names, invites and the ids of database and panels stay out, and
so do texts of tuples that curation hides. docs/paper-pack.md says what is in each table, and what is left out and why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.models import QuerySet

from annotation.judges.models import JudgeRun
from annotation.models import Adjudication, Draw, Judgment, Round, Stratum
from evaluation.evidence.conduct import harvest_entry, n_kept
from evaluation.evidence.judge_answers import differences
from evaluation.evidence.queries import OWN_SCORE, cells_with_strata, model_names
from evaluation.paper.rows.tables import TABLE_NAMED, Columns
from kgharvest.models import HarvestedTuple, HarvestJob, JobPrompt, KnowledgeTuple

ROWS_AT_ONCE = 5000
SUPERSEDED, GOLD, COUNTED, EXCLUDED, LATE = "superseded", "gold", "counted", "excluded", "late"
HIDDEN, SENSITIVE = KnowledgeTuple.Curation.HIDDEN.value, "sensitive"
NOT_PARAMETERS = ("device", "dtype")  # columns of their own

Numbers = Mapping[int, int]  # by id


def gather_rows(round: Round, judge: JudgeRun | None = None) -> dict[str, Columns]:
    """Return the columns of every table. judge: the run that the report used; without one there is none of judges."""
    statements = _statements(round)
    strata = [(key, stratum) for key, own in cells_with_strata(round).items() for stratum in own]
    number_of_stratum = {stratum.pk: number for number, (_, stratum) in enumerate(strata, start=1)}
    relation_names = {stratum.relation_id: key.relation for key, stratum in strata}
    jobs = _jobs(round)
    number_of_job = {job.pk: number for number, (job, _) in enumerate(jobs, start=1)}
    number_of_task = {task["pk"]: number for number, task in enumerate(statements, start=1)}
    tuples = _Numbered(task["knowledge_tuple"] for task in statements)
    rows = {
        "statements": _statement_rows(round, statements, tuples, relation_names),
        "judgments": _judgment_rows(round, number_of_task),
        "annotators": round.annotators.order_by("code").values_list("code", "status", "trained_at", "n_judged"),
        "strata": (_stratum_row(key, stratum, number_of_stratum, number_of_job) for key, stratum in strata),
        "draws": _draw_rows(round, number_of_stratum, number_of_task),
        "harvests": _harvest_rows(jobs, relation_names),
        "prompts": _prompt_rows(number_of_job),
        "harvested": _harvested_rows(round, jobs, tuples),
        "judge_runs": (),
        "judge_answers": (),
    }
    rows["annotators"] = ((code, status, at is not None, n) for code, status, at, n in rows["annotators"])
    if judge:
        runs = [judge, *(run for run in round.judge_runs.exclude(pk=judge.pk).order_by("name") if run.answers.exists())]
        rows["judge_runs"] = (_judge_run_row(number, run, judge) for number, run in enumerate(runs, start=1))
        rows["judge_answers"] = _judge_answer_rows(runs, tuples)
    return {name: _columns(name, of_table) for name, of_table in rows.items()}


class _Numbered(dict[int, int]):
    """Numbers of knowledge tuples by their ids, from 1 in the order in which they are first asked for."""

    def __init__(self, ids: Iterable[int]) -> None:
        super().__init__()
        for pk in ids:
            self[pk]

    def __missing__(self, pk: int) -> int:
        self[pk] = len(self) + 1
        return self[pk]


def _columns(name: str, rows: Iterable[Sequence[Any]]) -> Columns:
    columns: list[list[Any]] = [[] for _ in TABLE_NAMED[name].columns]
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return {column.name: values for column, values in zip(TABLE_NAMED[name].columns, columns, strict=True)}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


# -- statements and judgments ------------------------------------------------------------------------------------------


def _statements(round: Round) -> list[dict[str, Any]]:
    """Return the statements in the order of the evidence: gold comes last."""
    fields = ("pk", "knowledge_tuple", "is_gold", "gold_label", "entities", "statement", "n_wanted", "verdict")
    of_tuple = ("knowledge_tuple__relation", "knowledge_tuple__relation__name", "knowledge_tuple__curation")
    return list(round.tasks.order_by("is_gold", "position").values(*fields, *of_tuple).iterator(ROWS_AT_ONCE))


def _statement_rows(round: Round, statements: Sequence[dict[str, Any]], tuples: Numbers, relations: Mapping[int, str]):
    words = Adjudication.objects.current().filter(task__round=round).order_by()
    adjudicated = dict(words.values_list("task", "label"))
    for number, task in enumerate(statements, start=1):
        is_hidden = task["knowledge_tuple__curation"] == HIDDEN
        relation = relations.get(task["knowledge_tuple__relation"], task["knowledge_tuple__relation__name"])
        yield (
            number,
            tuples[task["knowledge_tuple"]],
            task["is_gold"],
            task["gold_label"] or None,
            relation,
            None if is_hidden else _json(task["entities"]),
            None if is_hidden else task["statement"],
            task["n_wanted"],
            task["verdict"] or None,
            adjudicated.get(task["pk"]),
        )


def _judgment_rows(round: Round, number_of_task: Numbers):
    """Yield the judgments of each statement in the order in which they were given."""
    judgments = Judgment.objects.not_withdrawn().filter(task__round=round)
    in_order = judgments.order_by("task__is_gold", "task__position", "judged_at", "client_uuid")
    fields = ("task", "annotator__code", "label", "seconds", "judged_at")
    marks = ("superseded_by", "task__is_gold", "is_counted", "is_excluded")
    for task, code, label, seconds, judged_at, *of_row in in_order.values_list(*fields, *marks).iterator(ROWS_AT_ONCE):
        yield number_of_task[task], code, label, seconds, judged_at, _status(*of_row)


def _status(superseded_by: Any, is_gold: bool, is_counted: bool, is_excluded: bool) -> str:
    if superseded_by is not None:
        return SUPERSEDED
    if is_gold:
        return GOLD
    return COUNTED if is_counted else EXCLUDED if is_excluded else LATE


# -- samples and harvests ----------------------------------------------------------------------------------------------


def _stratum_row(key: Any, stratum: Stratum, number_of_stratum: Numbers, number_of_job: Numbers) -> Sequence[Any]:
    place = (number_of_stratum[stratum.pk], *key)
    if stratum.job_id is None:  # what was drawn from is not known
        return *place, None, None, None, None, None, None
    ranks = None if stratum.ranks is None else _json(stratum.ranks)
    span = stratum.rank_from, stratum.rank_to, stratum.population
    return *place, number_of_job[stratum.job_id], *span, stratum.judge_label or None, ranks


def _draw_rows(round: Round, number_of_stratum: Numbers, number_of_task: Numbers) -> list[Sequence[Any]]:
    fields = ("stratum", "task", "harvested_tuple__rank", OWN_SCORE, "inclusion_probability")
    draws = Draw.objects.filter(stratum__round=round).order_by().values_list(*fields).iterator(ROWS_AT_ONCE)
    return sorted(
        ((number_of_stratum[stratum], number_of_task[task], *rest) for stratum, task, *rest in draws),
        key=lambda row: row[:2],
    )


def _jobs(round: Round) -> list[tuple[HarvestJob, Stratum]]:
    """Return the harvests that were drawn from in the order of the evidence, each with its last stratum."""
    strata = round.strata.exclude(job=None).order_by("language_model__name", "setting", "relation__name", "rank_to")
    last = {stratum.job_id: stratum for stratum in strata}
    jobs = HarvestJob.objects.select_related("language_model", "relation").in_bulk(last)
    return [(jobs[pk], stratum) for pk, stratum in last.items()]


def _harvest_rows(jobs: Sequence[tuple[HarvestJob, Stratum]], relations: Mapping[int, str]):
    models = model_names(job.language_model_id for job, _ in jobs)
    for number, (job, last) in enumerate(jobs, start=1):
        made = harvest_entry(job)
        yield (
            number,
            made["job"],
            relations.get(job.relation_id, job.relation.name),
            models[job.language_model_id],
            job.setting or None,
            *(made[name] for name in ("origin", "revision", "dtype", "device", "harvested_at", "code_version")),
            job.n_tuples,
            job.score_scale,
            last.cut or None,
            last.rank_to,
            _json(_parameters(job)),
        )


def _parameters(job: HarvestJob) -> dict[str, Any]:
    """Leave out the address of the paraphraser, which may be inside somebody's network, or name an account."""
    parameters = {name: value for name, value in job.payload.items() if name not in NOT_PARAMETERS}
    if "spec" in parameters:
        asked = parameters["spec"].get("paraphraser", {})
        parameters["spec"] = {
            **parameters["spec"],
            "paraphraser": {name: value for name, value in asked.items() if name != "base_url"},
        }
    return parameters


def _prompt_rows(number_of_job: Numbers):
    fields = ("prompt__text", "prompt__origin", "weight", "compatibility")
    for job, number in number_of_job.items():
        for row in JobPrompt.objects.filter(job=job).values_list(*fields):
            yield number, *row


def _harvested_rows(round: Round, jobs: Sequence[tuple[HarvestJob, Stratum]], tuples: Numbers):
    """Yield the tuples up to what the cut kept and what was drawn from, and one more, which tells where base:k ends."""
    fields = ("rank", "knowledge_tuple", "score", "knowledge_tuple__curation", "knowledge_tuple__is_sensitive")
    for number, (job, last) in enumerate(jobs, start=1):
        last_rank = max(n_kept(job.n_tuples, last.cut, last.rank_to), last.rank_to + 1)
        harvested: QuerySet = HarvestedTuple.objects.filter(job=job, rank__lte=last_rank).order_by("rank")
        for rank, pk, score, curation, is_sensitive in harvested.values_list(*fields).iterator(ROWS_AT_ONCE):
            is_left_out = is_sensitive and not round.include_sensitive
            left_out = HIDDEN if curation == HIDDEN else SENSITIVE if is_left_out else None
            yield number, rank, tuples[pk], score if job.is_scored else None, left_out


# -- judges ------------------------------------------------------------------------------------------------------------


def _judge_run_row(number: int, run: JudgeRun, judge: JudgeRun) -> Sequence[Any]:
    """Leave out the address, which may be inside somebody's network; that it differs is in `differs`."""
    asked = (run.name, run.model, run.revision or None, run.judge_kind, run.prompt or None, run.prompt_sha256)
    drawn = (run.temperature, run.seed, run.repeats, run.threshold, run.panel or None)
    return number, *asked, *drawn, _json(differences(judge, run))


def _judge_answer_rows(runs: Sequence[JudgeRun], tuples: Numbers):
    for number, run in enumerate(runs, start=1):
        answers = run.answers.order_by("knowledge_tuple", "repeat")
        rows = answers.values_list("knowledge_tuple", "repeat", "label", "score")
        for pk, repeat, label, score in rows.iterator(ROWS_AT_ONCE):
            yield number, tuples[pk], repeat, label or None, score
