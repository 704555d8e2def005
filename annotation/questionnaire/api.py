"""The questions before the first statement in JSON."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.judging.api import JudgingView, described
from annotation.models import Round
from annotation.questionnaire.groups import Groups, check_counts, questionnaire_groups
from annotation.questionnaire.questions import LONGEST_ANSWER, check_questions, who_questions
from annotation.questionnaire.services import (
    BadAnswers,
    Stage,
    answer_who_questions,
    n_tries_left,
    stage_of,
    take_check,
)
from annotation.questionnaire.withdrawal import withdraw_annotator
from annotation.rounds.api import RoundOperations
from kgharvest.api.input import StrictSerializer
from kgharvest.api.views import operation


class AskedQuestionSerializer(serializers.Serializer):
    key = serializers.CharField()
    text = serializers.CharField()
    choices = serializers.ListField(child=serializers.CharField(), help_text="Empty for a short text.")
    is_required = serializers.BooleanField(help_text="Else it may be left out: prefers not to say.")


class AskedFirstSerializer(serializers.Serializer):
    """stage: who (who you are), check (of the instructions), done, or failed: the check, and nothing more comes."""

    stage = serializers.ChoiceField([stage.value for stage in Stage])
    questions = AskedQuestionSerializer(many=True)
    n_tries_left = serializers.IntegerField(help_text="Of the check.")


class AskedFirstInput(StrictSerializer):
    stage = serializers.ChoiceField([Stage.WHO.value, Stage.CHECK.value], help_text="As the questions had it.")
    answers = serializers.DictField(
        child=serializers.CharField(max_length=LONGEST_ANSWER, allow_blank=True), help_text="By the question's key."
    )


ASKED = {
    "stage": "check",
    "questions": [
        {
            "key": "check-1",
            "text": "What is a true statement?",
            "choices": ["A usual one", "A nice one"],
            "is_required": True,
        }
    ],
    "n_tries_left": 2,
}
DONE = {"stage": "done", "questions": [], "n_tries_left": 1}


class Questions(JudgingView):
    """What a round asks before the training and the first statements."""

    @described("What is asked first", AskedFirstSerializer, ASKED, DONE)
    def get(self, request: Request, round_id: int) -> Response:
        return Response(AskedFirstSerializer(self.asked()).data)

    @described(
        "Answer what is asked first",
        AskedFirstSerializer,
        DONE,
        sent=AskedFirstInput,
    )
    def post(self, request: Request, round_id: int) -> Response:
        """The reply says what comes next. A check has two tries; which answers were wrong is not said."""
        sent = self.sent(AskedFirstInput)
        answer = answer_who_questions if sent["stage"] == Stage.WHO else take_check
        try:
            answer(self.annotator, sent["answers"], timezone.now())
        except BadAnswers as refusal:
            reasons = {key: [reason] for key, reason in refusal.reasons.items()}
            raise serializers.ValidationError({"answers": reasons}) from None
        self.annotator.refresh_from_db()
        return Response(AskedFirstSerializer(self.asked()).data)

    def asked(self) -> dict[str, Any]:
        round = Round.objects.get(pk=self.annotator.round_id)
        stage = stage_of(self.annotator, round)
        questions = {Stage.WHO: who_questions, Stage.CHECK: check_questions}.get(stage)
        return {
            "stage": stage.value,
            "questions": questions(round) if questions else [],
            "n_tries_left": n_tries_left(self.annotator),
        }


class GroupSerializer(serializers.Serializer):
    answer = serializers.CharField()
    n = serializers.IntegerField(help_text="People, five or more.")


class QuestionGroupsSerializer(serializers.Serializer):
    key = serializers.CharField()
    question = serializers.CharField()
    n = serializers.IntegerField(help_text="People.")
    groups = serializers.SerializerMethodField()

    @extend_schema_field(GroupSerializer(many=True))
    def get_groups(self, question: Groups) -> list[dict[str, Any]]:
        return [{"answer": answer, "n": n} for answer, n in question.groups]


class CheckCountsSerializer(serializers.Serializer):
    passed_first = serializers.IntegerField()
    passed_second = serializers.IntegerField()
    failed = serializers.IntegerField()


class WhoTookPartSerializer(serializers.Serializer):
    """questions: empty while fewer than five people have answered. check: null where the round has none."""

    questions = QuestionGroupsSerializer(many=True)
    check = CheckCountsSerializer(allow_null=True)


class QuestionnaireViewSet(RoundOperations):
    @operation("Participants of a round", method="get", serializer_class=WhoTookPartSerializer)
    def questionnaire(self, request: Request, round_id: int) -> Response:
        """Answers of the participants about themselves, in groups of five or more, and results of the comprehension
        check.
        """
        round = self.round()
        check = check_counts(round)._asdict() if round.check_questions else None
        return self.answer({"questions": questionnaire_groups(round), "check": check})


class WithdrawnSerializer(serializers.Serializer):
    kept = serializers.ListField(
        child=serializers.CharField(), help_text="Why some platform's ids of yours are kept for now, a sentence each."
    )


class Withdraw(JudgingView):
    """Consent is taken back; what the round does with your judgments then stood beside it. This cannot be undone."""

    @described("Withdraw from a round", WithdrawnSerializer, {"kept": []})
    def post(self, request: Request, round_id: int) -> Response:
        return Response({"kept": withdraw_annotator(self.annotator)})
