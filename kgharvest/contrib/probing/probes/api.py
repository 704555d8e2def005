"""API of probes."""

import json
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpResponse
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, OpenApiTypes, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from evaluation.scores.facts import BUILT_IN
from kgharvest.api.input import (
    CountField,
    FiniteField,
    PlacementInput,
    ProjectField,
    StrictSerializer,
    VisibleField,
)
from kgharvest.api.views import AnyRenderer, ApiViewSet, PagedList, RetrieveMixin, operation
from kgharvest.bulk.file_reading import MOST_LINES
from kgharvest.contrib.probing.models import Probe
from kgharvest.contrib.probing.probes.facts import (
    PARTS,
    RELATION_TYPES,
    SPLITS,
    Document,
    relations_from,
)
from kgharvest.contrib.probing.probes.services import JSON_LINES, ProbeParams, ProbeRequest, queue_probe
from kgharvest.contrib.probing.prompt_learning.registry import BUDGET_FIELDS, DEFAULT_METHODS, METHODS, PRESETS
from kgharvest.engine.filters import LONGEST_ENTITY
from kgharvest.harvests.language_models import PROBED_LM_NAMES_HELP, language_model_for_pages
from kgharvest.jobs.api import StatusFilters
from kgharvest.jobs.models import JOB_FIELDS, JOB_TIMES
from kgharvest.models import LanguageModel, Relation, RelationSet
from kgharvest.relations.checks import LONGEST_SENTENCE
from kgharvest.relations.prompt_files import ORIGINS
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import NDJSON

PROBE = {
    "id": 31,
    "project": "default",
    "name": "demo",
    "model": "embedded",
    "methods": ["manual", "lpaqa"],
    "facts": "built in",
    "status": "queued",
    "is_unfinished": True,
    "stage": "",
    "done": 0,
    "total": None,
    "attempts": 0,
    "error": "",
    "revision": "",
    "code_version": "",
    "document": {},
    "created_at": "2026-11-22T09:00:00Z",
    "started_at": None,
    "finished_at": None,
}
RESPONSES = {(200, "application/x-ndjson"): OpenApiResponse(OpenApiTypes.STR, "A record or a prompt per line.")}


class ProbeRowSerializer(serializers.ModelSerializer):
    project = serializers.CharField(source="project.slug")
    model = serializers.CharField(source="language_model.name")
    methods = serializers.ListField(child=serializers.CharField())
    is_unfinished = serializers.BooleanField(help_text="True if the probe is queued or running.")

    class Meta:
        model = Probe
        fields = [
            *("id", "project", "name", "model", "methods", "facts", *JOB_FIELDS, "revision", "code_version"),
            *JOB_TIMES,
        ]


@extend_schema_serializer(examples=[OpenApiExample("A probe", PROBE, response_only=True)])
class ProbeSerializer(ProbeRowSerializer):
    document = serializers.DictField(help_text="Result (docs/probing.md); empty until the probe has succeeded.")

    class Meta(ProbeRowSerializer.Meta):
        fields = [*ProbeRowSerializer.Meta.fields, "document"]


class FactInput(StrictSerializer):
    relation = serializers.CharField(max_length=100, required=False, help_text="Name. Required for several relations.")
    part = serializers.ChoiceField(PARTS, required=False, help_text="Required without a split.")
    sub = serializers.CharField(max_length=LONGEST_ENTITY)
    obj = serializers.CharField(max_length=LONGEST_ENTITY)


class TemplateInput(StrictSerializer):
    relation = serializers.CharField(max_length=100, required=False, help_text="Name. Required for several relations.")
    template = serializers.CharField(max_length=LONGEST_SENTENCE, help_text="[X] ... [Y]")
    type = serializers.ChoiceField(RELATION_TYPES, required=False)
    origin = serializers.ChoiceField([*dict.fromkeys(ORIGINS.values())], required=False)


class ProbeOptions(PlacementInput):
    """An LM, methods, and their options. The preset provides defaults for the learning budget."""

    model = serializers.CharField(max_length=500, help_text=f"Name: embedded, {PROBED_LM_NAMES_HELP}.")
    methods = serializers.ListField(
        child=serializers.ChoiceField([*METHODS]), default=[*DEFAULT_METHODS], allow_empty=False, max_length=100
    )
    name = serializers.CharField(max_length=200, required=False, help_text="Collective name of the relations.")
    common_with = serializers.ListField(
        child=serializers.CharField(max_length=500),
        default=list,
        max_length=20,
        help_text="LMs. Ranks are counted among words that are single tokens in all these LMs.",
    )
    with_control = serializers.BooleanField(
        default=ProbeParams.with_control, help_text="Also run every method on the LM with random weights."
    )
    preset = serializers.ChoiceField([*PRESETS], default=ProbeParams.preset)
    split = serializers.ChoiceField(
        [*SPLITS], default="", allow_blank=True, help_text="Random split of the facts. Default: the parts of the facts."
    )

    def get_fields(self) -> dict[str, serializers.Field]:
        budget = {}
        for name, option in BUDGET_FIELDS.items():
            least, most = option.metadata["min"], option.metadata["max"]
            kind = CountField if isinstance(least, int) else FiniteField
            budget[name] = kind(min_value=least, max_value=most, required=False)
        return super().get_fields() | budget


@extend_schema_serializer(
    examples=[OpenApiExample("A set", {"sets": [1], "model": "embedded", "methods": ["manual"], "with_control": False})]
)
class ProbeInput(ProbeOptions):
    """Request for a probe of binary relations or whole sets. The preset provides defaults for the learning budget."""

    project = ProjectField()
    relations = serializers.ListField(child=VisibleField(Relation.objects.all()), default=list, max_length=1000)
    sets = serializers.ListField(child=VisibleField(RelationSet.objects.all()), default=list, max_length=1000)
    facts = FactInput(
        many=True, required=False, max_length=MOST_LINES, help_text="Facts. Default: facts of the embedded LMs' world."
    )
    prompts = TemplateInput(
        many=True, required=False, max_length=MOST_LINES, help_text="Prompts in addition to those of the relations."
    )
    words = serializers.ListField(
        child=serializers.CharField(max_length=LONGEST_ENTITY),
        default=list,
        max_length=MOST_LINES,
        help_text="Words among which ranks are counted. Default: the whole vocabulary.",
    )

    def validate(self, sent: dict[str, Any]) -> dict[str, Any]:
        if not sent["relations"] and not sent["sets"]:
            raise serializers.ValidationError({"relations": ["Select at least one relation or relation set."]})
        return super().validate(sent)


def request_of(sent: dict[str, Any]) -> ProbeRequest:
    """Return the request for a valid ProbeInput. Raises NotProbed, NotFound, or ImportRefused."""
    relations = selected_relations(sent)
    names = [relation.name for relation in relations]
    facts, prompts = ([lines_of(key, sent[key])] if sent.get(key) else None for key in ("facts", "prompts"))
    return ProbeRequest(
        language_model=language_model_for_pages(sent["model"]),
        relations=relations_from(relations, facts, prompts, sent["split"], sent.get("seed", 0)),
        methods=sent["methods"],
        name=sent.get("name") or (names[0] if len(names) == 1 else f"{len(names)} relations"),
        facts="sent with the request" if facts else BUILT_IN,
        params=params_of(sent, sent["words"], language_model_for_pages),
    )


def selected_relations(sent: dict[str, Any]) -> list[Relation]:
    """Return the relations of "relations" and of the whole "sets"."""
    selected = Q(pk__in=[relation.pk for relation in sent["relations"]]) | Q(relation_set__in=sent["sets"])
    return list(Relation.objects.filter(selected).select_related("relation_set"))


def params_of(sent: dict[str, Any], words: Sequence[str], find_lm: Callable[[str], LanguageModel]) -> ProbeParams:
    """Return the parameters for valid ProbeOptions."""
    names = (*BUDGET_FIELDS, "preset", "device", "dtype", "with_control", "split")
    return ProbeParams(
        **{name: sent[name] for name in names if name in sent},
        common_with=[str(find_lm(name)) for name in sent["common_with"]],
        words=words,
    )


def lines_of(source: str, rows: list[dict[str, Any]]) -> Document:
    """Return rows as a document of JSON lines, so that the file reader validates them."""
    content = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()
    return Document(source, lambda: BytesIO(content))


class ProbeViewSet(PagedList, RetrieveMixin, ApiViewSet):
    """Probes of your projects, newest first. The document is available once the probe has succeeded."""

    serializer_class = ProbeSerializer
    entry_serializer_class = ProbeRowSerializer
    filters = StatusFilters

    def get_queryset(self) -> QuerySet:
        probes = Probe.objects.visible_to(self.request.user).select_related("project", "language_model")
        return probes.defer("document", "payload") if self.action == "list" else probes

    @extend_schema(request=ProbeInput, responses={202: ProbeSerializer}, summary="Probe an LM")
    def create(self, request: Request) -> Response:
        """A worker runs the probe. Retrieve the probe to check its status."""
        sent = self.sent(ProbeInput)
        probe = queue_probe(request_of(sent), request.user, sent.get("project"))
        return self.accepted(probe, self.address(probe))

    @operation("Records of a probe", method="get", responses=RESPONSES, renderer_classes=(AnyRenderer,))
    def records(self, request: Request, pk: int) -> HttpResponse:
        """One record per method and relation, as JSON lines."""
        return download(JSON_LINES["records"](self.get_object()), f"probe-{pk}-records.jsonl", NDJSON)

    @operation("Learned prompts of a probe", method="get", responses=RESPONSES, renderer_classes=(AnyRenderer,))
    def prompts(self, request: Request, pk: int) -> HttpResponse:
        """All learned prompts, as JSON lines."""
        return download(JSON_LINES["prompts"](self.get_object()), f"probe-{pk}-prompts.jsonl", NDJSON)
