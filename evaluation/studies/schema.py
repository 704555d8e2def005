"""Schema of study files: each section is the serializer of an existing feature, without keys that the study decides.

An option that is added to a launch, a round, or a judge is therefore an option of study files. `json_schema` describes
the same serializers for editors.
"""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from django.conf import settings
from django.core.exceptions import ValidationError
from drf_spectacular.drainage import get_override
from rest_framework import serializers

from annotation.judges.models import JudgeKind
from annotation.judges.specs import JudgeSpecSerializer, run_from_spec
from annotation.models import Round
from annotation.rounds.models import OPTIONS
from annotation.rounds.serializers import (
    CellSerializer,
    Description,
    Name,
    Number,
    OfType,
    RoundSerializer,
    Text,
    WholeNumber,
    default_of,
    first_fault,
)
from evaluation.reports.files import FILES, file_suffix
from evaluation.reports.forms import LEAST_POINTS, MOST_POINTS, ReportForm
from evaluation.studies.sections import APPS, Fault, KeyPath, sections_of, study_sections
from kgharvest.engine.filters import FILTERS
from kgharvest.engine.types import HarvestParams, ParaphraserKind, ParaphraserSettings, PatternBudget
from kgharvest.errors import DomainError
from kgharvest.harvests.api import HarvestInput
from kgharvest.harvests.runner import MIN_SEED_TUPLES
from kgharvest.names import alternatives
from kgharvest.relations.api import RelationTextInput
from kgharvest.relations.checks import RelationEntry, relation_errors

LARGEST_SEED = 2**63 - 1
NOT_QUOTED = (serializers.IntegerField, serializers.FloatField, serializers.BooleanField)
NOT_WRITTEN = {"is_written": False}  # style of keys that are set when a file is read, without completion in editors


def names_field(help_text: str) -> serializers.ListField:
    return serializers.ListField(child=Text(max_length=500), default=list, max_length=10_000, help_text=help_text)


class RelationSection(RelationTextInput):
    """Relations of a set (`set`), of a relation file (`file`), or one relation written here (`name`)."""

    set = Text(max_length=100, default="", help_text="Relation set of this installation, such as the built-in demo.")
    file = Text(max_length=1000, default="", help_text="Relation file, relative to the study file.")
    names = names_field("Relations of the set or file. Default: all.")

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = super().get_fields()
        for name in ("name", "statement", "seed_tuples"):
            fields[name].required = False
        return fields

    def validate(self, sent: dict[str, Any]) -> dict[str, Any]:
        sources = [name for name in ("set", "file", "name") if sent.get(name)]
        if len(sources) != 1:
            given = " and ".join(sources) or "none of them"
            raise serializers.ValidationError(f"requires one of set, file, and name, not {given}")
        if sources != ["name"]:
            if others := sorted(sent.keys() - {"set", "file", "names"}):
                raise serializers.ValidationError(
                    {others[0]: f"is only for relations written here, not for {sources[0]}"}
                )
        elif errors := list(relation_errors(entry_of(sent))):
            # Without initial prompts, the statement is the initial prompt.
            by_field = {error.field if error.field in sent else "statement": str(error) for error in reversed(errors)}
            raise serializers.ValidationError(by_field)
        return sent


def entry_of(relation: Mapping[str, Any], where: str = "") -> RelationEntry:
    """Return a relation written in a study file as an entry of a relation file, unvalidated."""
    statement = relation.get("statement")
    return RelationEntry(
        where=where,
        name=relation["name"],
        statement=statement,
        explanation=relation.get("explanation", ""),
        initial_prompts=list(relation.get("initial_prompts") or ([statement] if statement else [])),
        prompts=list(relation.get("prompts", [])),
        seed_tuples=[list(entities) for entities in relation.get("seed_tuples", [])],
        negative_seed_tuples=[list(entities) for entities in relation.get("negative_seed_tuples", [])],
        needs_seeds=False,  # only harvests need them
    )


class ParaphraserSection(Description):
    """Paraphraser that creates prompts, as in the command harvest."""

    kind = serializers.ChoiceField(get_args(ParaphraserKind), default=ParaphraserSettings.kind)
    model = Text(max_length=500, default="", help_text="Chat model, or seq2seq model; for translation OUT,BACK.")
    base_url = Text(max_length=500, default="", help_text="Chat endpoint of the paraphraser.")


class HarvestSection(HarvestInput):
    """Harvests of relations x LMs x settings with the same parameters, as in the command harvest and in the API."""

    relations = names_field("Names of relations of this study. Default: all.")
    prompts = names_field("Prompts that replace those of the relations.")
    paraphraser = ParaphraserSection(required=False)
    max_entity_repeats = WholeNumber(
        min_value=0,
        max_value=10**6,
        default=HarvestParams.max_entity_repeats,
        help_text="Maximum number of tuples per entity; 0 for no limit.",
    )
    pattern_budget = serializers.ChoiceField(
        get_args(PatternBudget),
        default=HarvestParams.pattern_budget,
        help_text="Candidates for each combination of entity lengths, or shared by all.",
    )
    disabled_filters = serializers.ListField(
        child=serializers.ChoiceField([*FILTERS]), default=list, help_text="Entity filters that are not applied."
    )
    seed = WholeNumber(min_value=0, max_value=LARGEST_SEED, default=0, help_text="Random seed of prompt creation.")
    heads_file = Text(
        max_length=1000, default="", help_text="Text or CSV file with more heads, one per line, relative to the study."
    )

    def params(self, sent: Mapping[str, Any]) -> HarvestParams:
        """Return the parameters of a valid section."""
        changed = {
            "max_entity_repeats": sent["max_entity_repeats"] or None,
            "disabled_filters": frozenset(sent["disabled_filters"]),
        }
        return super().params({**sent, **changed})


class CellSection(CellSerializer):
    """Sample of one cell, if cells differ."""

    job = None
    n = WholeNumber(
        min_value=1,
        max_value=10_000_000,
        default=None,
        help_text="Statements per cell, or all tuples of a cell that has fewer. Default: all tuples.",
    )

    def validate(self, cell: dict[str, Any]) -> dict[str, Any]:
        if missing := [name for name in ("relation", "model", "setting") if not cell[name]]:
            raise serializers.ValidationError({missing[0]: "is missing"})
        return cell


SAMPLE = ("n", "cut", "strata", "allocation")  # of each cell


class RoundSection(RoundSerializer):
    """The round as in open_round. Its cells are all harvests of the study, or those in `cells`."""

    project = None
    name = Name(max_length=100, required=False, help_text="Name of the round. Default: the name of the study.")
    cells = CellSection(many=True, required=False, allow_empty=False, help_text="Default: all harvests with `n`.")

    class Meta(RoundSerializer.Meta):
        fields = (
            *("name", "cells"),
            *(name for name in OPTIONS if name not in ("name", "source")),
            *("takes_guests", "limits", "relation_instructions", "confirm_noise"),
        )
        extra_kwargs = {}

    def get_fields(self) -> dict[str, serializers.Field]:
        fields, sample = super().get_fields(), CellSection().get_fields()
        # Added here, because a model serializer takes `strata` for the rows of the model.
        return {"name": fields.pop("name"), **{name: sample[name] for name in SAMPLE}, **fields}

    def validate(self, sent: dict[str, Any]) -> dict[str, Any]:
        try:
            Round(**{name: value for name, value in sent.items() if name in OPTIONS}).clean()
        except ValidationError as error:
            raise serializers.ValidationError(error.message_dict) from None
        return sent


class SimulationSection(Description):
    """Simulated annotators, who know most facts of the embedded LM's world. The report is marked as simulated."""

    seed = WholeNumber(min_value=0, max_value=LARGEST_SEED, default=0)
    n_annotators = WholeNumber(min_value=1, max_value=99, default=3)
    facts_called_true = Number(min_value=0, max_value=1, default=0.9, help_text="Share of facts that are called True.")
    others_called_true = Number(min_value=0, max_value=1, default=0.15, help_text="Share of other tuples.")


class JudgeSection(JudgeSpecSerializer):
    """LM judge as in judge_tuples."""

    path = None
    kind = serializers.ChoiceField(
        [choice for choice in JudgeKind.choices if choice[0] != JudgeKind.FILE],
        source="judge_kind",
        help_text="Source of the answers.",
    )

    class Meta(JudgeSpecSerializer.Meta):
        fields = tuple(name for name in JudgeSpecSerializer.Meta.fields if name != "path")


def _outputs() -> list[str]:
    """Return the names of files that a study can write."""
    return [*(file_suffix(name) for name in FILES), *settings.REPORT_OUTPUTS]


class ReportSection(Description):
    judge = Text(max_length=100, default="", help_text="Judge whose labels narrow the intervals. Default: none.")
    equivalence_margin = Number(
        min_value=LEAST_POINTS,
        max_value=MOST_POINTS,
        default=ReportForm.base_fields["equivalence_margin"].initial,
        help_text="Largest difference in percentage points at which two sides count as equivalent.",
    )

    def get_fields(self) -> dict[str, serializers.Field]:
        outputs = serializers.ListField(
            child=serializers.ChoiceField(_outputs()),
            default=lambda: ["report.html", "report.json"],
            help_text="Files to write when the round is complete.",
        )
        return super().get_fields() | {"outputs": outputs}


class PublishedRow(Description):
    setting = Text(max_length=30)
    model = Text(
        max_length=500, default="", help_text="LM. If the study does not harvest it, the study's own LMs are compared."
    )
    accepted = Number(min_value=0, max_value=1, help_text="Published share of accepted tuples.")
    rejected = Number(min_value=0, max_value=1, help_text="Published share of rejected tuples.")


class PublishedSection(Description):
    """Published results. The command prints those of the study beside them."""

    source = Text(max_length=500, help_text="Publication and table.")
    rows = PublishedRow(many=True, required=False, allow_empty=False, help_text="Shares, averaged over relations.")

    def validate(self, sent: dict[str, Any]) -> dict[str, Any]:
        if sent.keys() == {"source"}:
            raise serializers.ValidationError({"rows": "is missing"})
        return sent

    def get_fields(self) -> dict[str, serializers.Field]:
        rows = {key: section.published_row for key, section in study_sections().items() if section.published_row}
        return super().get_fields() | {
            key: row(many=True, required=False, allow_empty=False) for key, row in rows.items()
        }


class StudySections(Description):
    """Sections of a study, all of them optional."""

    description = Text(max_length=2000, allow_blank=True, default="", help_text="Purpose of the study.")
    project = Text(
        max_length=100, default="", help_text="Name of the project. Created if missing. Default: your only project."
    )
    relations = RelationSection(many=True, allow_empty=False)
    harvests = HarvestSection(many=True, required=False, allow_empty=False)
    round = RoundSection(required=False)
    simulation = SimulationSection(required=False)
    judges = JudgeSection(many=True, default=list)
    report = ReportSection(required=False)
    published = PublishedSection(required=False)

    def get_fields(self) -> dict[str, serializers.Field]:
        return super().get_fields() | {key: section.field() for key, section in study_sections().items()}


class StudySerializer(StudySections):
    name = Name(max_length=100, help_text="Name of the study, of its round, and of the set of its own relations.")
    small = serializers.DictField(
        required=False,
        help_text="Sections that replace those of the study with --small: a version that ends in minutes.",
    )

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = super().get_fields()
        return {"name": fields.pop("name"), **fields}


def faults_of(document: Any) -> list[Fault]:
    """Return the errors of a study's document, without its `small` sections."""
    serializer = StudySerializer(data=document)
    if not serializer.is_valid():
        return list(_faults(serializer, document, serializer.errors, ()))
    return [*_quoted(serializer, document, ()), *_faults_between_sections(document)]


def _quoted(field: serializers.Field, value: Any, path: KeyPath) -> Iterator[Fault]:
    """Yield an error for each number or truth value that is written as a string, which serializers accept."""
    if isinstance(field, serializers.Serializer):
        for key, inner in value.items():
            yield from _quoted(field.fields[key], inner, (*path, key))
    elif isinstance(field, serializers.ListSerializer | serializers.ListField) and isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _quoted(field.child, inner, (*path, position))
    elif isinstance(field, NOT_QUOTED) and isinstance(value, str):
        yield Fault(path, f"{key_of(path)} is the string {value!r:.60}. Remove the quotes")


def harvest_sections(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the harvest sections of a valid document with all defaults."""
    sections = HarvestSection(data=document.get("harvests", []), many=True)
    sections.is_valid(raise_exception=True)
    return list(sections.validated_data)


def validated_report(document: Mapping[str, Any]) -> dict[str, Any]:
    section = ReportSection(data=document)
    section.is_valid(raise_exception=True)
    return dict(section.validated_data)


def _faults_between_sections(document: Mapping[str, Any]) -> Iterator[Fault]:
    yield from _missing_sections(document)
    for position, relation in enumerate(document["relations"] if "harvests" in document else []):
        if "name" in relation and len(relation.get("seed_tuples", [])) < MIN_SEED_TUPLES:
            path = ("relations", position, "seed_tuples")
            yield Fault(path, f"{key_of(path)}: at least {MIN_SEED_TUPLES} seed tuples are required for harvests")
    for section in sections_of(document):
        yield from section.faults(document)
    judges = [judge["name"] for judge in document.get("judges", [])]
    for position, judge in enumerate(document.get("judges", [])):
        path = ("judges", position)
        try:
            run_from_spec(judge)
        except DomainError as refusal:
            yield Fault(path, f"{key_of(path)}: {str(refusal).rstrip('.')}")
        if judge["name"] in judges[:position]:
            yield Fault(
                (*path, "name"), f"{key_of(path)}.name is {judge['name']!r} twice. Give each judge its own name"
            )
    for key in document.get("published", {}).keys() - {"source", "rows", *document}:
        yield Fault(
            ("published", key), f"published.{key} requires the section {key}. Add it, or remove published.{key}"
        )
    for path in (("report", "judge"), ("round", "judge")):
        name = document.get(path[0], {}).get(path[1])
        if name and name not in judges:
            yield Fault(path, f"{key_of(path)} is {name!r}, but no judge of the study has this name. Add it to judges")


def _missing_sections(document: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield an error for each section that lacks a section on which it depends."""
    has_harvests, has_round = "harvests" in document, "round" in document
    of_round = {key for key, section in study_sections().items() if section.needs_round}
    if not {section.key for section in sections_of(document)} - of_round:
        yield from (Fault((), f"{key} is missing") for key in ("harvests", "round") if key not in document)
        return
    if has_round and not has_harvests:
        yield Fault(("round",), "round needs harvests. Add harvests, or remove round")
    if not has_round:
        for key in ("simulation", "judges", "report", *of_round):
            if key in document:
                yield Fault((key,), f"{key} needs a round. Add round, or remove {key}")
        if "rows" in document.get("published", {}):
            yield Fault(("published", "rows"), "published.rows needs a round. Add round, or remove published.rows")


def _faults(field: serializers.Field, document: Any, errors: Any, path: KeyPath) -> Iterator[Fault]:
    """Yield an error for each invalid key."""
    if isinstance(errors, list) and any(isinstance(error, Mapping) for error in errors):  # of a list of objects
        for position, inner in enumerate(errors):
            if inner:
                yield from _faults(field.child, document[position], inner, (*path, position))
    elif isinstance(errors, Mapping) and "non_field_errors" not in errors:
        is_object = isinstance(field, serializers.Serializer)
        for key, inner in errors.items():
            inner_path = (*path, key)
            if is_object and key not in field.fields and not path and key in APPS:
                advice = f"Install it (KGHARVEST_CONTRIB), or remove the section {key}"
                yield Fault(inner_path, f"{key} needs the app {APPS[key]}. {advice}")
            elif is_object and key not in field.fields:
                advice = alternatives(str(key), sorted(field.fields))
                yield Fault(inner_path, f"{key_of(inner_path)} is not a key of a study file; {advice}")
            elif is_object and key not in document:
                reason = "is missing" if "required" in _codes(inner) else _text(inner)
                yield Fault(path, _sentence(key_of(inner_path), reason))
            else:
                inner_field = field.fields[key] if is_object else field.child
                yield from _faults(inner_field, document[key], inner, inner_path)
    elif isinstance(field, OfType | serializers.ChoiceField) or hasattr(field, "expected"):
        yield Fault(path, first_fault(field, document, errors, key_of(path)).rstrip("."))
    else:
        text = _text(errors["non_field_errors"] if isinstance(errors, Mapping) else errors)
        yield Fault(path, _sentence(key_of(path) or "the study", text))


def _sentence(key: str, text: str) -> str:
    is_clause = text[:1].islower()
    return f"{key} {text}" if is_clause else f"{key}: {text}"


def _text(errors: Any) -> str:
    while isinstance(errors, list | Mapping):
        errors = next(iter(errors.values() if isinstance(errors, Mapping) else errors))
    return str(errors).rstrip(".")


def _codes(errors: Any) -> list[str]:
    return [getattr(error, "code", "") for error in (errors if isinstance(errors, list) else [errors])]


def key_of(path: KeyPath) -> str:
    """Return a path as text: ("harvests", 0, "settings") is harvests[0].settings."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


# For editors

PLAIN_TYPES: tuple[tuple[type[serializers.Field], str], ...] = (
    (serializers.BooleanField, "boolean"),
    (serializers.IntegerField, "integer"),
    (serializers.FloatField, "number"),
    (serializers.DecimalField, "number"),
    (serializers.CharField, "string"),
    (serializers.DateTimeField, "string"),
)
LIMITS = {"min_value": "minimum", "max_value": "maximum", "max_length": "maxLength"}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a study file, for completion in editors."""
    schema = _schema_of(StudySerializer())
    sections = _schema_of(StudySections())
    del sections["required"]
    schema["properties"]["small"] = sections | {"description": schema["properties"]["small"]["description"]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "kgharvest study", **schema}


def _schema_of(field: serializers.Field) -> dict[str, Any]:
    schema = _type_of(field)
    about = type(field).__doc__ if isinstance(field, serializers.Serializer) else field.label
    if description := " ".join(str(field.help_text or about or "").split()):
        schema["description"] = description
    if field.default is not serializers.empty and (default := default_of(field)) not in (None, ""):
        schema["default"] = default
    return schema


def _type_of(field: serializers.Field) -> dict[str, Any]:
    if isinstance(override := get_override(field, "field"), dict):
        return dict(override)
    if isinstance(field, serializers.ListSerializer):
        least = {} if field.allow_empty else {"minItems": 1}
        return {"type": "array", "items": _schema_of(field.child), **least}
    if isinstance(field, serializers.Serializer):
        required = [name for name, inner in field.fields.items() if inner.required]
        return {
            "type": "object",
            "properties": {
                name: _schema_of(inner) for name, inner in field.fields.items() if inner.style != NOT_WRITTEN
            },
            "additionalProperties": False,
            **({"required": required} if required else {}),
        }
    if isinstance(field, serializers.ListField):
        least = {} if field.allow_empty else {"minItems": 1}
        return {"type": "array", "items": _type_of(field.child), **least}
    if isinstance(field, serializers.DictField):
        return {"type": "object"}
    if isinstance(field, serializers.MultipleChoiceField):
        return {"type": "array", "items": {"enum": [*field.choices]}}
    if isinstance(field, serializers.ChoiceField):
        return {"enum": [*field.choices]}
    name = next(name for kind, name in PLAIN_TYPES if isinstance(field, kind))
    limits = {key: getattr(field, limit) for limit, key in LIMITS.items() if getattr(field, limit, None) is not None}
    return {"type": name, **{key: float(n) if name == "number" else n for key, n in limits.items()}}
