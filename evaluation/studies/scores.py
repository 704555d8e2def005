"""The section `scores` of study files: evaluations of scores on known facts, as in Figures 4 and 5 of BertNet."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from annotation.rounds.serializers import Description, Name, Text, WholeNumber
from evaluation.models import ScoreEvaluation, Study
from evaluation.rendering.figures.drawing import FIGURE_FORMATS
from evaluation.scores.api import ScoreInput, chosen_scores
from evaluation.scores.facts import (
    BUILT_IN,
    ScoredRelation,
    built_in_facts,
    named_rows_of_content,
    read_prompt,
    scored_relations,
)
from evaluation.scores.lookups import is_score, merged_scores
from evaluation.scores.negative_sampling import folded
from evaluation.scores.score_jobs import ScoreRequest, payload_of, queue_score_job, scorer_names
from evaluation.scores.tables import relation_scores_table, replaced_table, scorer_table
from evaluation.scores.views import score_file_content
from evaluation.studies.outputs import PUBLISHED
from evaluation.studies.schema import LARGEST_SEED, key_of, names_field, validated_report
from evaluation.studies.sections import Fault, JobsSection
from evaluation.studies.services import queued_jobs, relations_of, sampled_jobs
from kgharvest.bulk.file_reading import read_bytes
from kgharvest.bulk.file_values import BadValue, read_entities
from kgharvest.bulk.file_writing import write_if_changed
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.errors import DomainError
from kgharvest.harvests.language_models import LM_NAMES_HELP, check_where, get_language_model
from kgharvest.harvests.runner import HarvestRequest
from kgharvest.models import Job, Relation
from kgharvest.names import UnresolvedName, resolve_name
from kgharvest.pages.number_format import counted
from kgharvest.tables.formats import markdown_of
from kgharvest.tables.table import Column, Kind, Row, Table

MARKDOWN = "md"
FILE_FORMATS = (MARKDOWN, "json", "jsonl", *FIGURE_FORMATS)


@extend_schema_field({"oneOf": [{"type": "string"}, {"type": "object"}]})
class FactsField(serializers.Field):
    """File of facts, or lists of entities by relation, as stored after the file is read."""

    expected = 'a file of facts, or lists of entities by relation, such as {{"capital_of": [["paris", "france"]]}}'
    read = staticmethod(read_entities)

    def to_internal_value(self, value: Any) -> str | dict[str, list[tuple[str, ...]]]:
        if isinstance(value, str) and value:
            return value
        if not isinstance(value, Mapping) or not value or not all(isinstance(facts, list) for facts in value.values()):
            raise serializers.ValidationError("wrong facts")
        try:
            return {relation: list(map(self.read, facts)) for relation, facts in value.items()}
        except BadValue as fault:
            raise serializers.ValidationError(str(fault)) from None


class TrainingField(FactsField):
    """File of training facts and prompts, or lists of entities and prompts by relation."""

    @staticmethod
    def read(value: Any) -> tuple[str, ...] | str:
        return read_prompt(value) if isinstance(value, str) else read_entities(value)


@extend_schema_field({"oneOf": [{"type": "array", "items": {"type": "string"}}, {"type": "object"}]})
class SystemsField(serializers.Field):
    """Files of scores, or [entities, score] pairs by system and relation, as stored after the files are read."""

    expected = 'a list of files with scores, such as ["comet.jsonl"]'

    def to_internal_value(self, value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(name, str) and name for name in value):
            return value
        try:
            return {
                system: {
                    relation: [(folded(read_entities(entities)), _score(score)) for entities, score in rows]
                    for relation, rows in by_relation.items()
                }
                for system, by_relation in value.items()
            }
        except (AttributeError, TypeError, ValueError, BadValue):
            raise serializers.ValidationError("wrong scores") from None


def _score(value: Any) -> float:
    if not is_score(value):
        raise BadValue(f"has score {value!r:.40}")
    return float(value)


class ScoreSection(ScoreInput):
    """Evaluation of scores on known facts and false tuples, as in the command evaluate_scores."""

    project = judge_runs = None
    name = Name(max_length=100, default="scores", help_text="Name of the evaluation and of its files.")
    model = Text(max_length=500, default="embedded", help_text=f"LM: {LM_NAMES_HELP}.")
    facts = FactsField(
        default=None,
        help_text="File of facts, relative to the study file. Default: the facts of the embedded LMs' world.",
    )
    train = TrainingField(
        default=None,
        help_text="File of training facts and prompts of LPAQA. Default: the seed tuples and prompts of the relations.",
    )
    systems = SystemsField(default=list, help_text="Files with scores of other systems, relative to the study file.")
    judges = names_field("Judges of this study whose scores are evaluated.")
    seed = WholeNumber(min_value=0, max_value=LARGEST_SEED, default=0, help_text="Random seed of the false tuples.")
    outputs = serializers.ListField(
        child=serializers.ChoiceField(FILE_FORMATS),
        default=lambda: ["svg", MARKDOWN, "json"],
        help_text="Formats of the files: figure, tables, document, and scored tuples (jsonl).",
    )

    def to_internal_value(self, sent: Any) -> dict[str, Any]:
        if isinstance(sent, Mapping) and "harvested" in sent:
            sent = {"settings": []} | sent  # as in the command
        return super().to_internal_value(sent)


class PublishedOrder(Description):
    better = Text(max_length=100, help_text="Setting or system whose scores are better in the publication.")
    worse = Text(max_length=100, help_text="Setting or system whose scores are worse in the publication.")
    evaluation = Text(max_length=100, default="", help_text="Name of the evaluation. Default: all that have both.")


class ScoresSection(JobsSection):
    key = "scores"
    noun = "evaluation"
    entry = ScoreSection
    published_row = PublishedOrder

    def jobs(self) -> QuerySet[ScoreEvaluation]:
        return ScoreEvaluation.objects.defer("samples")  # which are large

    def faults(self, document: Mapping[str, Any]) -> Iterator[Fault]:
        sections = self.entries(document)
        names = [section["name"] for section in sections]
        judges = [judge["name"] for judge in document.get("judges", [])]
        taken = {PUBLISHED, *(validated_report(document.get("report", {}))["outputs"] if "round" in document else ())}
        for position, section in enumerate(sections):
            path = ("scores", position)
            if section["name"] in names[:position]:
                yield _fault((*path, "name"), f"is {section['name']!r} twice. Give each evaluation its own name")
            files = [f"{section['name']}.{name}" for name in section["outputs"]]
            if others := [file for file in files if file in taken]:
                yield _fault(
                    (*path, "name"),
                    f"is {section['name']!r}, but {others[0]} is another file of the study. Choose another name",
                )
            if not scorer_names(**_scorers(section)):
                yield _fault(path, "has no scores. Add settings, harvested, more, systems, or judges")
            if unknown := [name for name in section["judges"] if name not in judges]:
                yield _fault((*path, "judges"), f"names {unknown[0]!r}. Add a judge of this name to judges")
        for position, order in enumerate(document.get("published", {}).get("scores", [])):
            if (name := order.get("evaluation", "")) and name not in names:
                yield _fault(("published", "scores", position, "evaluation"), f"is {name!r}. Choose a name of scores")

    def with_files_read(self, section: Any, folder: Path) -> Any:
        read = []
        for position, evaluation in enumerate(section):
            key = key_of(("scores", position))
            systems = evaluation.get("systems")
            for name in ("facts", "train"):
                if isinstance(file := evaluation.get(name), str):
                    named = named_rows_of_content(*_read(folder / file, f"{key}.{name}"), with_prompts=name == "train")
                    evaluation = evaluation | {name: json.loads(json.dumps(named))}
            if isinstance(systems, list) and systems:
                table = merged_scores(_read(folder / name, f"{key}.systems") for name in systems)
                rows = {
                    system: {name: [[list(key), value] for key, value in rows] for name, rows in scores.items()}
                    for system, scores in table.items()
                }
                evaluation = evaluation | {"systems": rows}
            read.append(evaluation)
        return read

    def check(self, study: Study, requests: Sequence[HarvestRequest]) -> None:
        for position, section in enumerate(self.entries(study.document)):
            path = key_of(("scores", position))
            lm = get_language_model(section["model"])
            check_where(lm.name, section["device"], section["dtype"])
            scored = {relation.path for relation in _facts_of(study, section, path)}
            settings = chosen_scores(section)["harvested"]
            for setting in settings:
                scored &= {r.relation.path for r in requests if (r.language_model, r.setting) == (lm, setting)}
            if not scored:
                names = " and ".join(settings)
                raise DomainError(
                    "BadStudy",
                    f"{path}.harvested: the study harvests no relation with facts from {lm} with {names}. Add it to "
                    "harvests, or use settings instead of harvested.",
                )

    def plan_lines(self, study: Study, requests: Sequence[HarvestRequest]) -> Iterator[str]:
        for position, section in enumerate(self.entries(study.document)):
            relations = _facts_of(study, section, key_of(("scores", position)))
            n_facts = sum(len(relation.facts) for relation in relations)
            n_scores = len(scorer_names(**_scorers(section)))
            yield (
                f"scores {section['name']}: {counted(n_scores, 'score')} of {counted(n_facts, 'fact')} and as many "
                f"false tuples of {counted(len(relations), 'relation')}, with {section['model']}"
            )

    def request(self, study: Study, entry: Mapping[str, Any], path: str) -> ScoreRequest:
        runs = study.round.judge_runs.filter(name__in=entry["judges"]) if study.round else ()
        sampled = sampled_jobs(study.round) if study.round else []
        harvests = {job.unique_key: job.pk for job in [*queued_jobs(study), *sampled]}  # sampled ones take precedence
        return ScoreRequest(
            get_language_model(entry["model"]),
            facts=BUILT_IN if entry["facts"] is None else entry["name"],
            relations=_facts_of(study, entry, path),
            train=_rows_of({r.path: r for r in relations_of(study)}, entry["train"] or {}, f"{path}.train"),
            systems=entry["systems"] or {},
            judge_runs=list(runs),
            job_ids=list(harvests.values()),
            **chosen_scores(entry),
            **{name: entry[name] for name in ("seed", "device", "dtype")},
        )

    def inputs(self, study: Study, request: ScoreRequest) -> Any:
        return [request.language_model.pk, payload_of(replace(request, facts=""), study.project)]

    def queue_request(self, study: Study, request: ScoreRequest, unique_key: str, by: Any) -> Job:
        return queue_score_job(request, by, study.project, unique_key)

    def published_tables(self, study: Study) -> list[Table]:
        orders = study.document.get("published", {}).get("scores", [])
        return [_order_table(study, orders, list(self.finished(study)))] if orders else []

    def write(self, study: Study, folder: Path) -> Iterator[Path]:
        for section, evaluation in self.finished(study):
            for name in section["outputs"]:
                path = folder / f"{section['name']}.{name}"
                if name == MARKDOWN:
                    tables = (scorer_table, replaced_table, relation_scores_table)
                    content = markdown_of(section["name"], [build(evaluation.document) for build in tables])
                else:
                    content = score_file_content(evaluation, name)
                if content is not None and write_if_changed(path, content):
                    yield path


SECTION = ScoresSection()


def _fault(path: tuple[str | int, ...], reason: str) -> Fault:
    return Fault(path, f"{key_of(path)} {reason}")


def _read(path: Path, key: str) -> tuple[bytes, str]:
    """Return content and name of a file. Raises NoSuchFile with the key."""
    try:
        return read_bytes(path), path.name
    except DomainError as refusal:
        raise DomainError(refusal.code, f"{key}: {refusal}") from None


def _scorers(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `scorer_names`."""
    return {**chosen_scores(section), "others": [*section["systems"], *section["judges"]]}


def _facts_of(study: Study, section: Mapping[str, Any], path: str) -> list[ScoredRelation]:
    """Return the facts of the study's relations, in the order of the relations. Raises BadStudy."""
    relations = {relation.path: relation for relation in relations_of(study)}
    if section["facts"] is None:
        known = {relation.path: relation for relation in built_in_facts()}
        if not known.keys() & relations.keys():
            raise DomainError(
                "BadStudy", f"{path}.facts: the {BUILT_IN} has no facts of the relations of this study. Add a file."
            )
        return [known[name] for name in relations if name in known]
    facts = _rows_of(relations, section["facts"], f"{path}.facts")
    return scored_relations({relation: facts[name] for name, relation in relations.items() if name in facts})


def _rows_of(relations: Mapping[str, Relation], rows: Mapping[str, Any], path: str) -> dict[str, list[Any]]:
    """Return facts and prompts by set/name. Raises BadStudy for unknown relations and wrong numbers of entities."""
    resolved: dict[str, list[Any]] = {}
    for name, values in rows.items():
        try:
            full_name = resolve_name(name, relations, "relation")
        except UnresolvedName as refusal:
            raise DomainError("BadStudy", f"{path}: {refusal} Add it to relations.") from None
        arity = relations[full_name].arity
        for row in values:
            if (PromptTemplate.parse(row).arity if isinstance(row, str) else len(row)) != arity:
                kind, row = ("slots", row) if isinstance(row, str) else ("entities", list(row))
                raise DomainError("BadStudy", f"{path}.{name}: {row} does not have {arity} {kind}.")
        resolved.setdefault(full_name, []).extend(values)
    return resolved


def renamed_relations(section: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a section of scores with other names of relations, and with the built-in facts of renamed relations.

    names: new name of each relation of a set by set/name.
    """
    systems = section.get("systems")
    renamed = dict(section)
    if section.get("facts") is None:  # built-in facts have the names of the set demo
        known = {names[relation.path]: relation.facts for relation in built_in_facts() if relation.path in names}
        if known.keys() - names.keys():
            renamed["facts"] = {name: list(map(list, tuples)) for name, tuples in known.items()}
    for key in ("facts", "train"):
        if (rows := section.get(key)) is not None:
            renamed[key] = {}
            for name, values in rows.items():
                renamed[key].setdefault(names.get(name, name), []).extend(values)
    if systems:
        renamed["systems"] = {
            system: {
                names.get(name, name): rows
                for name, rows in sorted(by_relation.items(), key=lambda scores: scores[0] in names)  # the last is kept
            }
            for system, by_relation in systems.items()
        }
    return renamed


def _order_table(
    study: Study,
    orders: Sequence[Mapping[str, str]],
    finished: Sequence[tuple[Mapping[str, Any], ScoreEvaluation]],
) -> Table:
    """Return each published order of two scores beside their average precision in this study."""
    rows = []
    for order in orders:
        compared = []
        for section, evaluation in finished:
            better, worse = (_scorer(evaluation.document, order[side]) for side in ("better", "worse"))
            if better and worse and order.get("evaluation", section["name"]) == section["name"]:
                compared.append((section["name"], *_comparison(evaluation.document, better, worse)))
        blank = (order.get("evaluation", ""), *[None] * 6, "not evaluated")
        rows += [Row((order["better"], order["worse"], *values)) for values in compared or [blank]]
    columns = (
        Column("published better"),
        Column("published worse"),
        Column("evaluation"),
        Column("better", Kind.FINE),
        Column("worse", Kind.FINE),
        Column("difference", Kind.POINTS),
        Column("low", Kind.POINTS),
        Column("high", Kind.POINTS),
        Column("p (Holm)", Kind.P),
        Column("order"),
    )
    notes = [f"Published: {study.document['published']['source']}."]
    notes += [
        "better, worse: average precision in this study, pooled over relations. difference: mean over relations, with "
        "its 95 % interval. order: undecided if the interval contains 0 or is undefined."
    ]
    if any(evaluation.language_model.is_demonstrator for _, evaluation in finished):
        notes.append("The embedded LMs are demonstrators: their scores say nothing about other LMs.")
    return Table("published-orders", "Published orders and reproduced scores", columns, tuple(rows), tuple(notes))


def _scorer(document: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return the entry of a setting or system. For a setting, its harvested prompts take precedence."""
    entries = {entry["scorer"]: entry for entry in document["scorers"]}
    return entries.get(f"{name} (as harvested)") or entries.get(name)


def _comparison(document: Mapping[str, Any], better: Mapping[str, Any], worse: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return both average precisions, the difference over relations with its interval and p, and its sign."""
    precisions = (better["average_precision"], worse["average_precision"])
    names = (better["scorer"], worse["scorer"])
    entry = next((row for row in document["comparisons"] if {row["a"], row["b"]} == {*names}), None)
    if entry is None:
        return (*precisions, None, None, None, None, "undecided")
    difference, low, high = (entry[key] for key in ("difference", "low", "high"))
    if entry["a"] != names[0]:
        difference, low, high = (None if end is None else 0.0 - end for end in (difference, high, low))
    order = "same" if low is not None and low > 0 else "reversed" if high is not None and high < 0 else "undecided"
    return (*precisions, difference, low, high, entry["p_holm"], order)
