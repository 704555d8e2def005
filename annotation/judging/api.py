"""Judging API, also served as JSON at the URLs of the pages (annotation.judging.views).

Responses must not reveal the LM, the setting, the score, gold, or the labels of other annotators.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema, extend_schema_field, inline_serializer
from rest_framework import exceptions, serializers
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.invites.access import SessionAnnotator
from annotation.judging.assignment import next_batch, release_batch
from annotation.judging.judgments import (
    Answer,
    reassign_skipped,
    recent_judgments,
    report_statement,
    skip_task,
    submit_and_fill_batch,
)
from annotation.judging.models import SIXTEEN_HEX_DIGITS
from annotation.models import LONGEST_COMMENT, Annotator, JudgmentTask, Label, StatementReport
from annotation.rounds.instructions import instructions_markdown
from kgharvest.accounts.tokens import Scope
from kgharvest.api.authentication import TokenAllows
from kgharvest.api.input import Filters
from kgharvest.api.schema import RefusalSerializer
from kgharvest.api.views import ApiView
from kgharvest.http import refusal

NOT_JOINED = "You have not joined this round. Open your link or log in, then reload the page."


def wants_json(request: HttpRequest) -> bool:
    return request.get_preferred_type(["text/html", "application/json"]) == "application/json"


TASK = "9f86d081884c7d65"
UUID = "7f3c1a52-6d0e-4a9b-9c55-0d6f2d1f8e21"
PARTS = [["A dog", True], [" can ", False], ["swim", True], [".", False]]
TASKS = {"tasks": [{"task": TASK, "parts": PARTS}]}
REFUSED = OpenApiResponse(
    RefusalSerializer,
    "RoundNotOpen, AnnotatorNotActive, QuestionsFirst, TrainingFirst, NotAssigned, BadAnswer, UuidReused, SkipLimit: "
    "the state of the round, the annotator, or the statement does not allow the operation.",
    [
        OpenApiExample(
            "RoundNotOpen",
            refusal("RoundNotOpen", "Round pilot is closed. You can judge only while it is open."),
        )
    ],
)


# Generated clients name their methods after these ids, so the summaries may change, but the ids must not.
OPERATION_IDS = {
    "Get the next statements": "the_next_statements",
    "Skip a statement": "leave_a_statement_to_others",
    "Reassign skipped statements": "take_what_was_skipped_once_more",
    "Release assigned statements": "give_back_what_is_assigned",
    "Get your recent answers": "your_last_answers",
    "Get the instructions": "what_to_go_by",
    "Questions before judging": "what_is_asked_first",
    "Answer the questions before judging": "answer_what_is_asked_first",
}


def described(summary: str, reply: Any, *examples: Mapping[str, Any], sent: Any = None, **more: Any):
    """Add the OpenAPI description of a judging operation. examples: example responses."""
    shown = [OpenApiExample(f"example {number}", value) for number, value in enumerate(examples, start=1)]
    return extend_schema(
        summary=summary,
        operation_id=OPERATION_IDS.get(summary, summary.lower().replace(" ", "_")),
        tags=["judging"],
        request=sent,
        responses={200: OpenApiResponse(reply, examples=shown), 409: REFUSED},
        **more,
    )


MOST_RECENT = 50


# Requests and responses, also used to validate the forms of pages


class TaskField(serializers.RegexField):
    """Token of a statement, specific to the annotator."""

    def __init__(self, **options: Any):
        super().__init__(f"^{SIXTEEN_HEX_DIGITS}$", error_messages={"invalid": "Invalid statement token."}, **options)


class TaskSerializer(serializers.Serializer):
    task = TaskField()


class AnswerSerializer(TaskSerializer):
    label = serializers.ChoiceField(Label.choices)
    client_uuid = serializers.UUIDField(help_text="Unique per answer. Resending an answer has no effect.")
    seconds = serializers.FloatField(
        min_value=0, required=False, allow_null=True, help_text="Active viewing time in seconds."
    )
    comment = serializers.CharField(
        required=False, allow_blank=True, help_text=f"At most {LONGEST_COMMENT} characters."
    )  # the service checks the length
    wrong_part = serializers.CharField(
        required=False,
        allow_blank=True,
        help_text="Index of the wrong slot, or relation. Required for false if the statement has `slots`.",
    )
    opened_reference = serializers.BooleanField(
        required=False, allow_null=True, help_text="Whether a reference of the statement was opened before the answer."
    )
    more = serializers.BooleanField(
        required=False, allow_null=True, help_text="True to get the next statements in the response."
    )

    def validate_seconds(self, seconds: float | None) -> float | None:
        if seconds is not None and not isfinite(seconds):
            raise serializers.ValidationError("Invalid time. Omit the field or send a finite number of seconds.")
        return seconds


# Shared by all requests: creating the fields takes several times as long as validation.
_answers = AnswerSerializer()


def read_answer(annotator: Annotator, fields: Mapping[str, Any]) -> tuple[Answer, bool]:
    """Validate an answer. The second value is True if more statements are requested. Raises ValidationError."""
    valid = _answers.run_validation(fields)
    wants_more = bool(valid.pop("more", False))
    return Answer(annotator.task_of(valid.pop("task")), **valid), wants_more


class StatementReportInput(TaskSerializer):
    """Report of a broken statement. The fields have the same names as in the form on the page."""

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


class ReferenceSerializer(serializers.Serializer):
    text = serializers.CharField()
    url = serializers.CharField(allow_blank=True, help_text="Empty for a text without a link.")


class StatementSerializer(TaskSerializer):
    """references, slots: present only if the round shows references, or asks which part of a statement is wrong."""

    parts = PartsField()
    references = ReferenceSerializer(many=True, required=False)
    slots = serializers.ListField(child=serializers.CharField(), required=False, help_text="Entities by slot.")


class TaskQuery(Filters):
    task = TaskField(required=False, help_text="Token of one of your statements.")


class BatchSerializer(serializers.Serializer):
    """Statements assigned to the annotator, oldest first."""

    tasks = StatementSerializer(many=True)


class StoredSerializer(serializers.Serializer):
    """Stored answer. tasks: present only if requested and available."""

    stored = serializers.UUIDField()
    late = serializers.BooleanField(
        help_text="True if the lease had expired. The answer then counts only if the statement still needed a judgment."
    )
    tasks = StatementSerializer(many=True, required=False)


class AnsweredSerializer(StatementSerializer):
    label = serializers.ChoiceField(Label.choices)
    comment = serializers.CharField(allow_blank=True)
    wrong_part = serializers.CharField(allow_blank=True, required=False)
    opened_reference = serializers.BooleanField(allow_null=True, required=False)
    judged_at = serializers.DateTimeField()


class RecentSerializer(serializers.Serializer):
    """Recent answers, newest first."""

    answers = AnsweredSerializer(many=True)


class CountSerializer(serializers.Serializer):
    n = serializers.IntegerField(help_text="Number of statements.")


class InstructionsTextSerializer(serializers.Serializer):
    markdown = serializers.CharField()


def statements_of(annotator: Annotator, tasks: Sequence[JudgmentTask]) -> list[dict[str, Any]]:
    """Return the tasks as sent to the annotator: token, parts, and the additions that the round shows."""
    return [{"task": annotator.token_of(task.pk), "parts": task.parts, **(task.additions or {})} for task in tasks]


# Views


class NotJoined(exceptions.PermissionDenied):
    default_detail = NOT_JOINED


# Load only a few columns. The other columns are loaded when the annotator is locked for judging.
find_annotator = SessionAnnotator(lambda: Annotator.objects.only("user", "round", "token_key"))


class JudgingView(ApiView):
    """View for the annotator (`self.annotator`) who judges the round in the URL.

    by_browser: True for page URLs, which accept accounts and guests with a session. The API accepts only accounts,
    with a token or a session.
    """

    permission_classes = (TokenAllows,)
    scope = Scope.JUDGE
    by_browser = False
    refuses = True
    is_keyed = False

    def check_permissions(self, request: Request) -> None:
        if self.by_browser:
            self.annotator = find_annotator(request._request, self.kwargs["round_id"])
            if self.annotator is None and not request.user.is_authenticated:
                raise NotJoined
        else:
            super().check_permissions(request)
            self.annotator = Annotator.objects.of_account(request.user).filter(round=self.kwargs["round_id"]).first()
        if self.annotator is None:
            raise exceptions.NotFound("You have not joined this round.")


class CheckedSession(SessionAuthentication):
    """Session of a browser at the URL of a page, where middleware has already checked CSRF."""

    def enforce_csrf(self, request: Request) -> None:
        pass


class Judge(JudgingView):
    """Statements assigned to an annotator, and answers."""

    @described("Get the next statements", BatchSerializer, TASKS)
    def get(self, request: Request, round_id: int) -> Response:
        """Returns your assigned statements after filling up the batch.

        The statements are reserved for you for half an hour.
        """
        return Response({"tasks": statements_of(self.annotator, next_batch(self.annotator, timezone.now()))})

    @described(
        "Answer a statement",
        StoredSerializer,
        {"stored": UUID, "late": False},
        {"stored": UUID, "late": False, **TASKS},
        sent=AnswerSerializer,
    )
    def post(self, request: Request, round_id: int) -> Response:
        """Resending the same answer has no effect. To change an answer, send a new one with another UUID."""
        answer, wants_more = read_answer(self.annotator, request.data)
        judgment, tasks = submit_and_fill_batch(self.annotator, answer, timezone.now(), fills=wants_more)
        more = {} if tasks is None else {"tasks": statements_of(self.annotator, tasks)}
        return Response({"stored": str(judgment.pk), "late": judgment.is_late, **more})


class Skip(JudgingView):
    """Releases the statement immediately. You can request skipped statements again.

    The number of skipped statements is limited (SkipLimit). The limit rises with your answers.
    """

    @described(
        "Skip a statement",
        inline_serializer("Skipped", {"skipped": TaskField()}),
        {"skipped": TASK},
        sent=TaskSerializer,
    )
    def post(self, request: Request, round_id: int) -> Response:
        task = self.sent(TaskSerializer)["task"]
        skip_task(self.annotator, self.annotator.task_of(task))
        return Response({"skipped": task})


class Report(JudgingView):
    """A report is not a judgment. A second report replaces the first."""

    @described(
        "Report a broken statement",
        inline_serializer("Reported", {"reported": TaskField()}),
        {"reported": TASK},
        sent=StatementReportInput,
    )
    def post(self, request: Request, round_id: int) -> Response:
        sent = self.sent(StatementReportInput)
        task, comment = self.annotator.task_of(sent["task"]), sent.get("comment", "")
        report_statement(self.annotator, task, sent["reason"], comment, timezone.now())
        return Response({"reported": sent["task"]})


class Reassign(JudgingView):
    @described("Reassign skipped statements", CountSerializer, {"n": 2})
    def post(self, request: Request, round_id: int) -> Response:
        """Skipped statements that still need judgments will be among your next statements."""
        return Response({"n": reassign_skipped(self.annotator)})


class Release(JudgingView):
    @described("Release assigned statements", CountSerializer, {"n": 7})
    def post(self, request: Request, round_id: int) -> Response:
        """Releases your unanswered statements immediately instead of after half an hour."""
        return Response({"n": release_batch(self.annotator)})


class Recent(JudgingView):
    refuses = False

    @described(
        "Get your recent answers",
        RecentSerializer,
        {
            "answers": [
                {"task": TASK, "parts": PARTS, "label": "true", "comment": "", "judged_at": "2026-11-22T10:00:00Z"}
            ]
        },
    )
    def get(self, request: Request, round_id: int) -> Response:
        judgments = recent_judgments(self.annotator, MOST_RECENT)
        statements = statements_of(self.annotator, [judgment.task for judgment in judgments])
        names = ("label", "comment", "wrong_part", "opened_reference", "judged_at")
        answers = [
            statement | {name: getattr(judgment, name) for name in names}
            for statement, judgment in zip(statements, judgments, strict=True)
        ]
        return Response(RecentSerializer({"answers": answers}).data)


class Instructions(JudgingView):
    refuses = False

    @described(
        "Get the instructions",
        InstructionsTextSerializer,
        {"markdown": "Read the statement and say whether it is true in general."},
        parameters=[TaskQuery],
    )
    def get(self, request: Request, round_id: int) -> Response:
        """Instructions in Markdown. `task` adds the instructions for the relation of one of your statements."""
        relation = None
        if token := self.filtered_by(TaskQuery).get("task"):
            tasks = self.annotator.round.tasks.filter(assignments__annotator=self.annotator)
            task = get_object_or_404(
                tasks.select_related("knowledge_tuple__relation"), pk=self.annotator.task_of(token)
            )
            relation = task.knowledge_tuple.relation
        return Response({"markdown": instructions_markdown(self.annotator.round, relation)})
