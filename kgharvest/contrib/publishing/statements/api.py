"""API of paper metadata: the authors' answers to questions about a study."""

from typing import Any

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from evaluation.models import Report
from evaluation.reports.api import ReportOperations
from kgharvest.api.input import StrictSerializer
from kgharvest.api.views import operation
from kgharvest.contrib.publishing.statements import services

EXAMPLE = {"languages": "English", "pay": "money", "pay_adequacy": "15 EUR an hour; the minimum wage is 12.82 EUR."}


class QuestionSerializer(serializers.Serializer):
    """A question for the authors. answer: empty if unanswered."""

    key = serializers.CharField()
    group = serializers.CharField()
    label = serializers.CharField()
    help_text = serializers.CharField(allow_blank=True)
    places = serializers.CharField(
        allow_blank=True, help_text="Where documents use the answer: in HEDS, RAI, the checklist, or the citation."
    )
    choices = serializers.ListField(
        child=serializers.CharField(), help_text="Valid answers. Empty if any text is valid."
    )
    is_optional = serializers.BooleanField(help_text="True if documents are complete without the answer.")
    answer = serializers.CharField(allow_blank=True)


class StatementsSerializer(serializers.Serializer):
    """All questions with their answers, and the keys of unanswered questions."""

    statements = QuestionSerializer(many=True)
    missing = serializers.ListField(child=serializers.CharField(), help_text="Keys of unanswered required questions.")


class StatementsInput(StrictSerializer):
    """Answers by key. Omitted answers stay unchanged; an empty text deletes an answer."""

    def get_fields(self) -> dict[str, serializers.Field]:
        fields: dict[str, serializers.Field] = {}
        for question in services.QUESTIONS:
            options = {"required": False, "allow_blank": True, "help_text": question.label}
            if question.choices:
                fields[question.key] = serializers.ChoiceField([value for value, _ in question.choices], **options)
            else:
                fields[question.key] = serializers.CharField(max_length=services.LONGEST_ANSWER, **options)
        return fields


class StatementsViewSet(ReportOperations):
    serializer_class = StatementsSerializer
    lookup_url_kwarg = "report_id"

    @operation("Paper metadata", "paper/statements/", method="get")
    def statements(self, request: Request, report_id: int) -> Response:
        """The answers are stored with the round and used by all its reports."""
        return self.answer(self.said(self.get_object()))

    @extend_schema(
        summary="Edit the paper metadata",
        request=StatementsInput,
        examples=[OpenApiExample("Languages and pay", EXAMPLE, request_only=True)],
    )
    @statements.mapping.patch
    def edit_statements(self, request: Request, report_id: int) -> Response:
        """Sets answers that only the authors can give. They are used in the documents that accompany a paper."""
        report = self.get_object()
        try:
            services.save_statements(report.round, self.sent(StatementsInput), by=request.user)
        except services.BadStatement as refusal:
            raise serializers.ValidationError({key: [reason] for key, reason in refusal.reasons.items()}) from None
        return self.answer(self.said(report))

    def said(self, report: Report) -> dict[str, Any]:
        answers = services.statements_on(report.round)
        rows = [
            {
                **question._asdict(),
                "places": question.places.in_words,
                "choices": [value for value, _ in question.choices],
                "answer": answers.get(question.key, ""),
            }
            for question in services.QUESTIONS
        ]
        return {"statements": rows, "missing": [question.key for question in services.unsaid_on(report)]}
