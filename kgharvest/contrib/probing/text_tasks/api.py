"""API of text tasks."""

import json
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kgharvest.api.input import CountField, FiniteField, PlacementInput, ProjectField, VisibleField
from kgharvest.api.views import ApiViewSet, PagedList, RetrieveMixin
from kgharvest.bulk.file_reading import MOST_LINES
from kgharvest.contrib.probing.models import TextTask
from kgharvest.contrib.probing.probes.api import selected_relations
from kgharvest.contrib.probing.text_tasks.options import LISTS, METHODS_OF, NUMBERS, default_options
from kgharvest.contrib.probing.text_tasks.services import TextTaskRequest, queue_text_task
from kgharvest.harvests.language_models import PROBED_LM_NAMES_HELP, language_model_for_pages
from kgharvest.jobs.api import StatusFilters
from kgharvest.jobs.models import JOB_FIELDS, JOB_TIMES
from kgharvest.models import Relation, RelationSet
from kgharvest.relations.checks import LONGEST_SENTENCE

ALL_METHODS = list(dict.fromkeys(method for methods in METHODS_OF.values() for method in methods))
LINE = {"part": "train", "sentence": "a lovely film", "label": "positive"}


class TextTaskRowSerializer(serializers.ModelSerializer):
    project = serializers.CharField(source="project.slug")
    model = serializers.CharField(source="language_model.name")
    is_unfinished = serializers.BooleanField(help_text="True if the task is queued or running.")

    class Meta:
        model = TextTask
        fields = ["id", "project", "task", "name", "model", *JOB_FIELDS, *JOB_TIMES]


class TextTaskSerializer(TextTaskRowSerializer):
    records = serializers.ListField(
        child=serializers.DictField(), help_text="One per method (docs/text-tasks.md); empty until the task succeeded."
    )

    class Meta(TextTaskRowSerializer.Meta):
        fields = [*TextTaskRowSerializer.Meta.fields, "records"]


@extend_schema_serializer(
    examples=[OpenApiExample("Texts", {"task": "classify", "model": "embedded", "lines": [LINE]})]
)
class TextTaskInput(PlacementInput):
    """A task, an LM, and lines: texts with part and label, or facts with part, sub, obj, and context or evidences."""

    project = ProjectField()
    task = serializers.ChoiceField(TextTask.Task.choices)
    model = serializers.CharField(max_length=500, help_text=f"Name: embedded, {PROBED_LM_NAMES_HELP}.")
    name = serializers.CharField(max_length=200, default="API request", help_text="Name of the task.")
    lines = serializers.ListField(child=serializers.DictField(), allow_empty=False, max_length=MOST_LINES)
    relations = serializers.ListField(child=VisibleField(Relation.objects.all()), default=list, max_length=1000)
    sets = serializers.ListField(child=VisibleField(RelationSet.objects.all()), default=list, max_length=1000)
    methods = serializers.ListField(child=serializers.ChoiceField(ALL_METHODS), required=False, allow_empty=False)
    template = serializers.CharField(max_length=LONGEST_SENTENCE, required=False, help_text="AutoPrompt template.")
    manual = serializers.CharField(max_length=LONGEST_SENTENCE, required=False, help_text="Manual template.")
    label_words = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField(max_length=100)), required=False
    )
    only_labels = serializers.ListField(child=serializers.CharField(max_length=100), required=False)
    balance = serializers.BooleanField(required=False, help_text="Sample equally many texts of each label per part.")
    perturbed = serializers.BooleanField(required=False, help_text="Also use contexts with replaced objects.")
    with_control = serializers.BooleanField(default=True, help_text="Also run each method on random weights.")

    def get_fields(self) -> dict[str, serializers.Field]:
        fields: dict[str, serializers.Field] = {}
        for name, number in NUMBERS.items():
            kind = FiniteField if isinstance(number.minimum, float) else CountField
            bounds = {"min_value": number.minimum, "max_value": number.maximum}
            fields[name] = kind(**bounds, required=False, help_text=number.help.capitalize() + ".")
        for name, help_text in LISTS.items():
            fields[name] = serializers.ListField(
                child=CountField(), max_length=20, required=False, help_text=help_text.capitalize() + "."
            )
        return super().get_fields() | fields


class TextTaskViewSet(PagedList, RetrieveMixin, ApiViewSet):
    """Text tasks of your projects, newest first. Records are available once the task has succeeded."""

    serializer_class = TextTaskSerializer
    entry_serializer_class = TextTaskRowSerializer
    filters = StatusFilters

    def get_queryset(self) -> QuerySet:
        tasks = TextTask.objects.visible_to(self.request.user).select_related("project", "language_model")
        return tasks.defer("payload", "lines", *(["records"] if self.action == "list" else []))

    @extend_schema(request=TextTaskInput, responses={202: TextTaskSerializer}, summary="Start a text task")
    def create(self, request: Request) -> Response:
        """A worker runs the task. Retrieve the task to check its status."""
        sent = self.sent(TextTaskInput)
        task = queue_text_task(request_of(sent), request.user, sent.get("project"))
        return self.accepted(task, self.address(task))


def request_of(sent: dict[str, Any]) -> TextTaskRequest:
    """Return the request for a valid TextTaskInput. Raises NotFound for an unknown LM."""
    return TextTaskRequest(
        sent["task"],
        language_model_for_pages(sent["model"]),
        sent["name"],
        "\n".join(json.dumps(line, ensure_ascii=False) for line in sent["lines"]),
        selected_relations(sent),
        {name: sent[name] for name in default_options(sent["task"]) if name in sent},
        **{name: sent[name] for name in ("with_control", "device", "dtype")},
    )
