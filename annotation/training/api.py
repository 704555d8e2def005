"""API of annotator training."""

from django.utils import timezone
from rest_framework import exceptions, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from annotation.judging.api import PARTS, JudgingView, PartsField, described
from annotation.models import Label
from annotation.training import services


class TrainingAnswerSerializer(serializers.Serializer):
    position = serializers.IntegerField(min_value=0, max_value=1000)
    label = serializers.ChoiceField(Label.choices)


class TrainingStatementSerializer(serializers.Serializer):
    position = serializers.IntegerField()
    parts = PartsField()


class TrainedSerializer(serializers.Serializer):
    """Result of a training. missed: (position, given label) of each incorrect answer."""

    n_right = serializers.IntegerField()
    n_answered = serializers.IntegerField()
    missed = serializers.ListField(child=serializers.ListField())


class TrainingSerializer(serializers.Serializer):
    """Progress of the training.

    statement: the next statement, or null after the last statement. finished: the result after the last statement,
    otherwise null.
    """

    n_statements = serializers.IntegerField()
    statement = TrainingStatementSerializer(allow_null=True)
    finished = TrainedSerializer(allow_null=True)


class TrainingReasonSerializer(serializers.Serializer):
    position = serializers.IntegerField()
    is_right = serializers.BooleanField()
    label = serializers.ChoiceField(["true", "false"], help_text="Correct answer.")
    reason = serializers.CharField()


class TrainingStatements(JudgingView):
    """Training before the first batch of a round."""

    def check_training(self) -> None:
        if not self.annotator.round.training_size:
            raise exceptions.NotFound("This round has no training.")

    @described(
        "Get the next training statement",
        TrainingSerializer,
        {"n_statements": 5, "statement": {"position": 0, "parts": PARTS}, "finished": None},
        {"n_statements": 5, "statement": None, "finished": {"n_right": 4, "n_answered": 5, "missed": [[2, "true"]]}},
    )
    def get(self, request: Request, round_id: int) -> Response:
        self.check_training()
        statements, finished = self.annotator.round.training_statements, services.last_training(self.annotator)
        is_over = finished and not self.annotator.trainings.filter(finished_at=None).exists()
        statement = (
            None if is_over else services.next_statement(services.current_training(self.annotator, timezone.now()))
        )
        answer = {"n_statements": statements.count(), "statement": statement, "finished": finished if is_over else None}
        return Response(TrainingSerializer(answer).data)

    @described(
        "Answer a training statement",
        TrainingReasonSerializer,
        {"position": 0, "is_right": True, "label": "true", "reason": "It is an example."},
        sent=TrainingAnswerSerializer,
    )
    def post(self, request: Request, round_id: int) -> Response:
        """Returns the correct label and the reason. Resending the same answer has no effect."""
        self.check_training()
        sent = self.sent(TrainingAnswerSerializer)
        statement = services.answer_training(self.annotator, **sent, now=timezone.now())
        if statement is None:
            statement = services.answered_statement(self.annotator, sent["position"])
        if statement is None:
            raise exceptions.NotFound("This is not the next training statement. Load the next statement.")
        reason = {"is_right": sent["label"] == statement.label, "label": statement.label, "reason": statement.reason}
        return Response({"position": statement.position, **reason})
