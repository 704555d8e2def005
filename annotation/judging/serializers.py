"""Serializers of judging requests and responses, also used to validate the forms of pages.

Responses must not reveal LM, setting, score, gold, or the labels of other annotators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from annotation.judging.judgments import Answer
from annotation.judging.models import SIXTEEN_HEX_DIGITS
from annotation.models import LONGEST_COMMENT, Annotator, JudgmentTask, Label, StatementReport
from annotation.rounds.instructions import statement_parts
from kgharvest.api.input import Filters


class TaskField(serializers.RegexField):
    """Token of a statement, specific to the annotator."""

    def __init__(self, **options: Any):
        super().__init__(f"^{SIXTEEN_HEX_DIGITS}$", error_messages={"invalid": "Invalid statement token."}, **options)


class TaskSerializer(serializers.Serializer):
    task = TaskField()


class AnswerSerializer(TaskSerializer):
    label = serializers.ChoiceField(Label.choices)
    client_uuid = serializers.UUIDField(help_text="Unique per answer. Resending it has no effect.")
    seconds = serializers.FloatField(
        min_value=0, required=False, allow_null=True, help_text="Active viewing time in seconds."
    )
    comment = serializers.CharField(
        required=False, allow_blank=True, help_text=f"At most {LONGEST_COMMENT} characters."
    )  # the service checks the length
    more = serializers.BooleanField(
        required=False, allow_null=True, help_text="True to get the next statements in the response."
    )

    def validate_seconds(self, seconds: float | None) -> float | None:
        if seconds is not None and not isfinite(seconds):
            raise serializers.ValidationError("Invalid time. Omit the field or send a finite number of seconds.")
        return seconds


# Shared by all requests: creating the fields takes several times as long as validation.
_answers = AnswerSerializer()


def checked_answer(sent: Mapping[str, Any]) -> dict[str, Any]:
    """Validate an answer with AnswerSerializer. Raises ValidationError."""
    return _answers.run_validation(sent)


def answer_of(annotator: Annotator, fields: Mapping[str, Any]) -> Answer:
    task, comment = annotator.task_of(fields["task"]), fields.get("comment", "")
    return Answer(task, fields["label"], fields["client_uuid"], fields.get("seconds"), comment)


class StatementReportInput(TaskSerializer):
    """Field names are those of the page's form."""

    def get_fields(self) -> dict[str, serializers.Field]:
        return super().get_fields() | {
            "report-reason": serializers.ChoiceField(StatementReport.Reason.choices, source="reason"),
            "report-comment": serializers.CharField(required=False, allow_blank=True, source="comment"),
        }


PART = {"type": "array", "minItems": 2, "maxItems": 2, "items": {"oneOf": [{"type": "string"}, {"type": "boolean"}]}}


@extend_schema_field({"type": "array", "items": PART})
class PartsField(serializers.Field):
    """Parts of a statement: [text, is_entity]."""

    def to_representation(self, parts: Sequence[tuple[str, bool]]) -> list[list[Any]]:
        return [[text, is_entity] for text, is_entity in parts]


class StatementSerializer(TaskSerializer):
    parts = PartsField()


class TaskQuery(Filters):
    task = TaskField(required=False, help_text="Token of one of your statements.")


class BatchSerializer(serializers.Serializer):
    """tasks: assigned to the annotator, oldest first."""

    tasks = StatementSerializer(many=True)


class StoredSerializer(serializers.Serializer):
    """tasks: only if requested and available."""

    stored = serializers.UUIDField()
    late = serializers.BooleanField(
        help_text="True if the lease had expired. Counted only if the statement still needed it."
    )
    tasks = StatementSerializer(many=True, required=False)


class AnsweredSerializer(StatementSerializer):
    label = serializers.ChoiceField(Label.choices)
    comment = serializers.CharField(allow_blank=True)
    judged_at = serializers.DateTimeField()


class RecentSerializer(serializers.Serializer):
    """answers: newest first."""

    answers = AnsweredSerializer(many=True)


class CountSerializer(serializers.Serializer):
    n = serializers.IntegerField(help_text="Statements.")


class InstructionsTextSerializer(serializers.Serializer):
    markdown = serializers.CharField()


def statements_of(annotator: Annotator, tasks: Sequence[JudgmentTask]) -> list[dict[str, Any]]:
    """Return the tasks as sent to the annotator: token and parts only."""
    return [
        {"task": annotator.token_of(task.pk), "parts": statement_parts(task.statement, task.spans)} for task in tasks
    ]
