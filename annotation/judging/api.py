"""Judging in JSON, at the addresses of the pages (annotation.judging.views) for whoever asks for JSON.

The serializers check what pages send as well. What is sent here must tell nothing about LM, setting, score, gold or
what others said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema, extend_schema_field, inline_serializer
from rest_framework import exceptions, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from annotation.judging.assignment import next_batch
from annotation.judging.judgments import (
    Answer,
    report_statement,
    skip_task,
    submit_and_fill_batch,
    submit_judgment,
)
from annotation.judging.models import SIXTEEN_HEX_DIGITS
from annotation.models import LONGEST_COMMENT, Annotator, JudgmentTask, Label, StatementReport
from annotation.recruiting.access import session_annotator
from annotation.rounds.instructions import statement_parts

NOT_JOINED = "Nobody who judges this round is known here; come back with your link or log in, and reload the page."


def wants_json(request: HttpRequest) -> bool:
    return request.get_preferred_type(["text/html", "application/json"]) == "application/json"


# -- what annotators send ----------------------------------------------------------------------------------------------


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

    def answer_of(self, annotator: Annotator) -> Answer:
        fields = self.validated_data
        task, comment = annotator.task_of(fields["task"]), fields.get("comment", "")
        return Answer(task, fields["label"], fields["client_uuid"], fields.get("seconds"), comment)


class ReportSerializer(TaskSerializer):
    """Fields are named as in the form of the page."""

    def get_fields(self) -> dict[str, serializers.Field]:
        return super().get_fields() | {
            "report-reason": serializers.ChoiceField(StatementReport.Reason.choices, source="reason"),
            "report-comment": serializers.CharField(required=False, allow_blank=True, source="comment"),
        }


# -- what they get -----------------------------------------------------------------------------------------------------

PART = {"type": "array", "minItems": 2, "maxItems": 2, "items": {"oneOf": [{"type": "string"}, {"type": "boolean"}]}}


@extend_schema_field({"type": "array", "items": PART})
class PartsField(serializers.Field):
    """Stretches of text, each with whether it is an entity."""


class StatementSerializer(TaskSerializer):
    parts = PartsField()


class BatchSerializer(serializers.Serializer):
    """tasks: the annotator's assigned tasks, oldest first."""

    tasks = StatementSerializer(many=True)


class StoredSerializer(serializers.Serializer):
    """tasks: only where more are asked for and can be had."""

    stored = serializers.UUIDField()
    late = serializers.BooleanField(help_text="Its lease was over: kept, and counted only if it was still wanted.")
    tasks = StatementSerializer(many=True, required=False)


class ErrorSerializer(serializers.Serializer):
    code = serializers.CharField()
    message = serializers.CharField()
    fields = serializers.DictField(required=False)


class RefusalSerializer(serializers.Serializer):
    error = ErrorSerializer()


def statements_of(annotator: Annotator, tasks: Sequence[JudgmentTask]) -> list[dict[str, Any]]:
    """Return all that the annotator's browser learns about tasks."""
    return [
        {"task": annotator.token_of(task.pk), "parts": statement_parts(task.statement, task.spans)} for task in tasks
    ]


# -- how it is described -----------------------------------------------------------------------------------------------

TASK = "9f86d081884c7d65"
UUID = "7f3c1a52-6d0e-4a9b-9c55-0d6f2d1f8e21"
TASKS = {"tasks": [{"task": TASK, "parts": [["A dog", True], [" can ", False], ["swim", True], [".", False]]}]}


def _refusal(description: str, code: str, message: str, **more: Any) -> OpenApiResponse:
    example = OpenApiExample(code, {"error": {"code": code, "message": message, **more}})
    return OpenApiResponse(RefusalSerializer, description, [example])


REFUSALS = {
    400: _refusal(
        "Invalid: the fields are not valid.",
        "Invalid",
        "The input is not valid.",
        fields={"label": ['"maybe" is not a valid choice.']},
    ),
    403: _refusal("NotJoined: nobody who judges this round is known here.", "NotJoined", NOT_JOINED),
    409: _refusal(
        "RoundNotOpen, AnnotatorNotActive, TrainingFirst, NotAssigned, BadAnswer, UuidReused: the round, the part that "
        "the annotator has in it, or the statement does not allow it.",
        "RoundNotOpen",
        "The round pilot is closed; judgments are taken only while it is open.",
    ),
}


def _described(summary: str, reply: Any, *examples: Mapping[str, Any], sent: Any = None):
    """Describe an operation of judging; `examples`: of its reply."""
    shown = [OpenApiExample(f"example {number}", value) for number, value in enumerate(examples, start=1)]
    return extend_schema(
        summary=summary,
        operation_id=summary.lower().replace(" ", "_"),
        tags=["judging"],
        request=sent,
        responses={200: OpenApiResponse(reply, examples=shown), **REFUSALS},
    )


# -- views -------------------------------------------------------------------------------------------------------------


class NotJoined(exceptions.PermissionDenied):
    default_detail = NOT_JOINED


class JudgingView(APIView):
    """Knows who judges in the round of that name here: `self.annotator`, an account or a guest of the session."""

    permission_classes = ()

    def perform_authentication(self, request: Request) -> None:
        """Leave it to session_annotator; the session's cookie and the CSRF token are looked at before."""
        self.annotator = session_annotator(request._request, self.kwargs["name"])
        if self.annotator is None and request._request.user.is_authenticated:
            raise exceptions.NotFound("No round that you have joined.")
        if self.annotator is None:
            raise NotJoined


class Judge(JudgingView):
    """Statements for one annotator, and their answers."""

    @_described("The next statements", BatchSerializer, TASKS)
    def get(self, request: Request, name: str) -> Response:
        return Response({"tasks": statements_of(self.annotator, next_batch(self.annotator, timezone.now()))})

    @_described(
        "Answer a statement",
        StoredSerializer,
        {"stored": UUID, "late": False},
        {"stored": UUID, "late": False, **TASKS},
        sent=AnswerSerializer,
    )
    def post(self, request: Request, name: str) -> Response:
        serializer = AnswerSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        answer, tasks = serializer.answer_of(self.annotator), None
        if serializer.validated_data.get("more"):
            judgment, tasks = submit_and_fill_batch(self.annotator, answer, timezone.now())
        else:
            judgment = submit_judgment(self.annotator, answer, timezone.now())
        more = {} if tasks is None else {"tasks": statements_of(self.annotator, tasks)}
        return Response({"stored": str(judgment.pk), "late": judgment.is_late, **more})


class Skip(JudgingView):
    """A statement is released at once; it comes back on request."""

    @_described(
        "Leave a statement to others",
        inline_serializer("Skipped", {"skipped": TaskField()}),
        {"skipped": TASK},
        sent=TaskSerializer,
    )
    def post(self, request: Request, name: str) -> Response:
        serializer = TaskSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        skip_task(self.annotator, self.annotator.task_of(serializer.validated_data["task"]))
        return Response({"skipped": serializer.validated_data["task"]})


class Report(JudgingView):
    """A report is no judgment; a second one replaces the first."""

    @_described(
        "Report a broken statement",
        inline_serializer("Reported", {"reported": TaskField()}),
        {"reported": TASK},
        sent=ReportSerializer,
    )
    def post(self, request: Request, name: str) -> Response:
        serializer = ReportSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        fields = serializer.validated_data
        task, comment = self.annotator.task_of(fields["task"]), fields.get("comment", "")
        report_statement(self.annotator, task, fields["reason"], comment, timezone.now())
        return Response({"reported": fields["task"]})
