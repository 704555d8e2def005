"""What annotators send and get in JSON. The serializers check what forms of pages send as well.

What is sent here must tell nothing about LM, setting, score, gold or what others said.
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
    """A statement by the name that only this annotator has for it."""

    def __init__(self, **options: Any):
        super().__init__(f"^{SIXTEEN_HEX_DIGITS}$", error_messages={"invalid": "This is no statement."}, **options)


class TaskSerializer(serializers.Serializer):
    task = TaskField()


class AnswerSerializer(TaskSerializer):
    label = serializers.ChoiceField(Label.choices)
    client_uuid = serializers.UUIDField(help_text="One for each answer; sent again it counts once.")
    seconds = serializers.FloatField(
        min_value=0, required=False, allow_null=True, help_text="How long the statement was actively in sight."
    )
    comment = serializers.CharField(
        required=False, allow_blank=True, help_text=f"At most {LONGEST_COMMENT} characters."
    )  # its length is the service's rule, told in its own words
    more = serializers.BooleanField(
        required=False, allow_null=True, help_text="Whether the reply is to bring the next statements."
    )

    def validate_seconds(self, seconds: float | None) -> float | None:
        if seconds is not None and not isfinite(seconds):
            raise serializers.ValidationError("Give a number of seconds, or leave it out.")
        return seconds


# One for all requests: making its fields costs several times what checking an answer does.
_answers = AnswerSerializer()


def checked_answer(sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an answer as AnswerSerializer has them. Raises ValidationError."""
    return _answers.run_validation(sent)


def answer_of(annotator: Annotator, fields: Mapping[str, Any]) -> Answer:
    task, comment = annotator.task_of(fields["task"]), fields.get("comment", "")
    return Answer(task, fields["label"], fields["client_uuid"], fields.get("seconds"), comment)


class StatementReportInput(TaskSerializer):
    """Fields are named as in the form of the page."""

    def get_fields(self) -> dict[str, serializers.Field]:
        return super().get_fields() | {
            "report-reason": serializers.ChoiceField(StatementReport.Reason.choices, source="reason"),
            "report-comment": serializers.CharField(required=False, allow_blank=True, source="comment"),
        }


PART = {"type": "array", "minItems": 2, "maxItems": 2, "items": {"oneOf": [{"type": "string"}, {"type": "boolean"}]}}


@extend_schema_field({"type": "array", "items": PART})
class PartsField(serializers.Field):
    """Stretches of text, each with whether it is an entity."""

    def to_representation(self, parts: Sequence[tuple[str, bool]]) -> list[list[Any]]:
        return [[text, is_entity] for text, is_entity in parts]


class StatementSerializer(TaskSerializer):
    parts = PartsField()


class TaskQuery(Filters):
    task = TaskField(required=False, help_text="A statement that you have.")


class BatchSerializer(serializers.Serializer):
    """tasks: the annotator's assigned tasks, oldest first."""

    tasks = StatementSerializer(many=True)


class StoredSerializer(serializers.Serializer):
    """tasks: only where more are asked for and can be had."""

    stored = serializers.UUIDField()
    late = serializers.BooleanField(help_text="Its lease was over: kept, and counted only if it was still wanted.")
    tasks = StatementSerializer(many=True, required=False)


class AnsweredSerializer(StatementSerializer):
    label = serializers.ChoiceField(Label.choices)
    comment = serializers.CharField(allow_blank=True)
    judged_at = serializers.DateTimeField()


class RecentSerializer(serializers.Serializer):
    """answers: your last ones, the newest first."""

    answers = AnsweredSerializer(many=True)


class CountSerializer(serializers.Serializer):
    n = serializers.IntegerField(help_text="Statements.")


class InstructionsTextSerializer(serializers.Serializer):
    markdown = serializers.CharField()


def statements_of(annotator: Annotator, tasks: Sequence[JudgmentTask]) -> list[dict[str, Any]]:
    """Return all that the annotator's browser learns about tasks."""
    return [
        {"task": annotator.token_of(task.pk), "parts": statement_parts(task.statement, task.spans)} for task in tasks
    ]
