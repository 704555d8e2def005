"""API of the questionnaire, the comprehension check, and withdrawal."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.judging.api import JudgingView, described
from annotation.models import Round
from annotation.questionnaire import services
from annotation.questionnaire.groups import Groups, check_counts, questionnaire_groups
from annotation.questionnaire.questions import LONGEST_ANSWER, check_questions, who_questions
from annotation.questionnaire.services import BadAnswers, Stage, n_tries_left, stage_of
from annotation.questionnaire.withdrawal import withdraw_annotator
from annotation.rounds.api import RoundOperations
from kgharvest.api.input import StrictSerializer
from kgharvest.api.views import operation

ASKED = {
    "stage": "check",
    "questions": [
        {
            "key": "check-1",
            "text": "What is a true statement?",
            "choices": ["A correct statement", "A plausible statement"],
            "is_required": True,
        }
    ],
    "n_tries_left": 2,
}
DONE = {"stage": "done", "questions": [], "n_tries_left": 1}


class AskedQuestionSerializer(serializers.Serializer):
    key = serializers.CharField()
    text = serializers.CharField()
    choices = serializers.ListField(child=serializers.CharField(), help_text="Empty if the answer is a short text.")
    is_required = serializers.BooleanField(help_text="False if you may omit the answer (prefer not to say).")


class AskedFirstSerializer(serializers.Serializer):
    """Questions before the first statement.

    stage: who (questionnaire), check (comprehension check), done, or failed (failed the check; you cannot judge).
    """

    stage = serializers.ChoiceField([stage.value for stage in Stage])
    questions = AskedQuestionSerializer(many=True)
    n_tries_left = serializers.IntegerField(help_text="Remaining attempts at the check.")


class AskedFirstInput(StrictSerializer):
    stage = serializers.ChoiceField([Stage.WHO.value, Stage.CHECK.value], help_text="Stage of the questions.")
    answers = serializers.DictField(
        child=serializers.CharField(max_length=LONGEST_ANSWER, allow_blank=True), help_text="Answers by question key."
    )


class Questions(JudgingView):
    """Questions of a round before the training and the first statements."""

    @described("Questions before judging", AskedFirstSerializer, ASKED, DONE)
    def get(self, request: Request, round_id: int) -> Response:
        return Response(AskedFirstSerializer(self.asked()).data)

    @described("Answer the questions before judging", AskedFirstSerializer, DONE, sent=AskedFirstInput)
    def post(self, request: Request, round_id: int) -> Response:
        """Returns the next stage. You have two attempts at the check and are not told which answers were wrong."""
        sent = self.sent(AskedFirstInput)
        answer = services.answer_who_questions if sent["stage"] == Stage.WHO else services.take_check
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
    n = serializers.IntegerField(help_text="Number of people, at least five.")


class QuestionGroupsSerializer(serializers.Serializer):
    key = serializers.CharField()
    question = serializers.CharField()
    n = serializers.IntegerField(help_text="Number of people.")
    groups = serializers.SerializerMethodField()

    @extend_schema_field(GroupSerializer(many=True))
    def get_groups(self, question: Groups) -> list[dict[str, Any]]:
        return [{"answer": answer, "n": n} for answer, n in question.groups]


class CheckCountsSerializer(serializers.Serializer):
    passed_first = serializers.IntegerField()
    passed_second = serializers.IntegerField()
    failed = serializers.IntegerField()


class WhoTookPartSerializer(serializers.Serializer):
    """Participants of a round. questions: empty for fewer than five answers. check: null if the round has no check."""

    questions = QuestionGroupsSerializer(many=True)
    check = CheckCountsSerializer(allow_null=True)


class QuestionnaireViewSet(RoundOperations):
    @operation("Participants of a round", method="get", serializer_class=WhoTookPartSerializer)
    def questionnaire(self, request: Request, round_id: int) -> Response:
        """Questionnaire answers in groups of at least five people, and results of the comprehension check."""
        round = self.round()
        check = check_counts(round) if round.check_questions else None
        return self.answer({"questions": questionnaire_groups(round), "check": check})


class WithdrawnSerializer(serializers.Serializer):
    kept = serializers.ListField(
        child=serializers.CharField(), help_text="Reasons why some of your platform ids remain stored for now."
    )


class Withdraw(JudgingView):
    """Withdraws your consent. The consent text says what happens to your judgments. This cannot be undone."""

    @described("Withdraw from a round", WithdrawnSerializer, {"kept": []})
    def post(self, request: Request, round_id: int) -> Response:
        return Response({"kept": withdraw_annotator(self.annotator)})
