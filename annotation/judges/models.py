"""Runs of judges, LMs that label the tuples of a round, and what they answered.

What a judge says is no judgment of a person: it is in no verdict, no count and no agreement, and annotators get none
of it.
"""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.urls import reverse

from annotation.judging.models import Label
from annotation.rounds.models import Round
from kgharvest.engine.language_models.networks.placement import (
    DEFAULT_DEVICE,
    DEFAULT_DTYPE,
    DEVICE_HELP,
    DTYPE_HELP,
    DTYPES,
)
from kgharvest.jobs.devices import validate_device
from kgharvest.jobs.models import JobQuerySet
from kgharvest.models import Job, KnowledgeTuple

LONGEST_PROMPT = 20_000  # characters
MOST_TOKENS = 10**12
MOST_MONEY = 10**6
OUT_OF_BUDGET = "out of budget"  # the stage of a run that stopped there


class JudgeKind(models.TextChoices):
    CHAT = "chat", "chat model behind an OpenAI-compatible endpoint"
    CAUSAL = "causal", "causal LM, by the likelier of three answers"
    SCORE = "score", "LM's own score, by a threshold"
    FILE = "file", "answers from a file"


class JudgeRunQuerySet(JobQuerySet):
    def for_list(self):
        return self.select_related("round__project", "created_by").order_by("-pk")


class JudgeRun(Job):
    """A judge asked about the tuples of a round; work of a worker, or of the command. Its prompt and LM never change.

    OPTIONS names the fields that researchers choose; JSON description and form are made from them.

    prompt_sha256: as annotation.judges.runs.prompt_sha256 says. relation_texts: what the prompt says of each relation,
    by its id, {"instructions", "examples", ...}, frozen when the run is made; of a score judge {"prompts",
    "seed_tuples"}. payload: {"is_trusted"}, whether any address may be asked and gets the installation's key, and
    {"unanswered"}, tokens of prompts and of replies that were no answers. panel: runs of a round with the same one
    judge together.
    """

    KIND = "judge"
    OPTIONS = (
        "name", "model", "revision", "base_url", "prompt", "n_examples", "example_order", "temperature", "seed",
        "repeats", "threshold", "max_completion_tokens", "max_tokens_total", "budget", "prompt_price",
        "completion_price", "n_parallel", "requests_per_minute", "timeout_s", "device", "dtype", "limit", "panel",
    )  # fmt: skip

    round = models.ForeignKey(Round, on_delete=models.PROTECT, related_name="judge_runs")
    name = models.SlugField(max_length=100, help_text="Letters, digits, - and _; the round has no other run of it.")
    judge_kind = models.CharField("kind", max_length=6, choices=JudgeKind)
    model = models.CharField(max_length=500, help_text="As the endpoint knows it; else an LM as harvests name it.")
    revision = models.CharField(max_length=100, blank=True, help_text="Of an LM that runs here.")
    base_url = models.CharField(
        "address",
        max_length=500,
        blank=True,
        help_text="Up to and without /chat/completions. Empty is that of this installation.",
    )
    prompt = models.TextField(
        blank=True,
        max_length=LONGEST_PROMPT,
        help_text="With {statement}, and {instructions}, {relation} and {examples} where wanted. Empty is the usual.",
    )
    n_examples = models.PositiveSmallIntegerField(
        "examples",
        default=0,
        validators=[MaxValueValidator(20)],
        help_text="Statements with known answers that {examples} shows of each relation, half of them true.",
    )
    example_order = models.PositiveIntegerField(
        "order of the examples",
        default=0,
        validators=[MaxValueValidator(1_000_000)],
        help_text="0 is true and false in turns, each other number an order of its own: to see what order changes.",
    )
    temperature = models.FloatField(default=0, validators=[MinValueValidator(0), MaxValueValidator(2)])
    seed = models.PositiveBigIntegerField(default=0, help_text="Sent with each request; repeats count on from it.")
    repeats = models.PositiveSmallIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(99)],
        help_text="How often each tuple is asked; its label is that of most of them.",
    )
    threshold = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(-1e6), MaxValueValidator(0)],
        help_text="In nats: a tuple whose score is at least this is true, another one false.",
    )
    max_completion_tokens = models.PositiveIntegerField(
        "tokens of an answer",
        default=100,
        validators=[MinValueValidator(1), MaxValueValidator(100_000)],
        help_text="At most; LMs that think aloud need thousands.",
    )
    max_tokens_total = models.PositiveBigIntegerField(
        "tokens in all",
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(MOST_TOKENS)],
        help_text="Of prompts and answers together; the run stops before it has used more. Empty is no limit.",
    )
    budget = models.DecimalField(
        max_digits=12,
        decimal_places=4,
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(MOST_MONEY)],
        help_text="In the currency of the prices; the run stops before it has cost more. Empty is no limit.",
    )
    prompt_price = models.DecimalField(
        "price of a million prompt tokens",
        max_digits=12,
        decimal_places=4,
        default=0,
        validators=[MinValueValidator(0), MaxValueValidator(MOST_MONEY)],
    )
    completion_price = models.DecimalField(
        "price of a million answer tokens",
        max_digits=12,
        decimal_places=4,
        default=0,
        validators=[MinValueValidator(0), MaxValueValidator(MOST_MONEY)],
    )
    n_parallel = models.PositiveSmallIntegerField(
        "requests at once", default=4, validators=[MinValueValidator(1), MaxValueValidator(64)]
    )
    requests_per_minute = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(1_000_000)],
        help_text="Empty is as fast as the endpoint answers.",
    )
    timeout_s = models.PositiveSmallIntegerField(
        "seconds for an answer", default=60, validators=[MinValueValidator(1), MaxValueValidator(3600)]
    )
    device = models.CharField(
        max_length=20,
        default=DEFAULT_DEVICE,
        validators=[validate_device],
        help_text=f"Of an LM that runs here: {DEVICE_HELP}.",
    )
    dtype = models.CharField(
        "number format",
        max_length=8,
        default=DEFAULT_DTYPE,
        db_default=DEFAULT_DTYPE,
        choices=[(name, name) for name in DTYPES],
        help_text=f"Of an LM that runs here: {DTYPE_HELP}.",
    )
    limit = models.PositiveIntegerField(
        "tuples",
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(10_000_000)],
        help_text="At most, those that people judge first. Empty is all; estimates need all.",
    )
    panel = models.SlugField(
        max_length=100, blank=True, help_text="Runs of the round with the same panel judge together, each a vote."
    )

    prompt_sha256 = models.CharField(max_length=64, editable=False)
    relation_texts = models.JSONField(default=dict, editable=False)

    objects = JudgeRunQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["round", "name"], name="judge_run_round_name_unique"),
            models.CheckConstraint(
                condition=Q(judge_kind__in=["chat", "causal", "score", "file"]), name="judge_run_kind_known"
            ),
            models.CheckConstraint(condition=Q(repeats__gte=1), name="judge_run_repeats_positive"),
            models.CheckConstraint(
                condition=~Q(judge_kind="score") | Q(threshold__isnull=False), name="judge_run_score_has_threshold"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.model})"

    def get_absolute_url(self) -> str:
        return reverse("annotation:judge_run", args=[self.round.path, self.name])

    @property
    def is_out_of_budget(self) -> bool:
        return self.status == self.Status.FAILED and self.stage == OUT_OF_BUDGET


class JudgeAnswer(models.Model):
    """What a judge answered about one tuple, one time. Rows are only added, so that a run taken up again asks no more.

    repeat: from 0. raw: the text as it came. label: empty if `raw` names none. score: of a score judge its score in
    nats, of a causal LM its probability of True among the three answers; else None. prompt_sha256: of the template as
    used. model_reported: as the endpoint or the loaded LM named itself, with its fingerprint or revision; empty where
    it did not. cost: in the currency of the run's prices. seconds: from the request to its answer, waits left out.
    """

    run = models.ForeignKey(JudgeRun, on_delete=models.CASCADE, related_name="answers", db_index=False)
    knowledge_tuple = models.ForeignKey(KnowledgeTuple, on_delete=models.PROTECT, related_name="judge_answers")
    repeat = models.PositiveSmallIntegerField(default=0)
    raw = models.TextField(blank=True)
    label = models.CharField(max_length=11, blank=True, choices=Label)
    score = models.FloatField(null=True, blank=True)
    prompt_sha256 = models.CharField(max_length=64)
    model_reported = models.CharField(max_length=700, blank=True)
    n_prompt_tokens = models.PositiveIntegerField(default=0)
    n_completion_tokens = models.PositiveIntegerField(default=0)
    cost = models.DecimalField(max_digits=16, decimal_places=8, default=0)
    seconds = models.FloatField(null=True, blank=True)
    answered_at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "knowledge_tuple", "repeat"], name="judge_answer_run_tuple_repeat_unique"
            ),
            models.CheckConstraint(
                condition=Q(label__in=["", "true", "false", "unjudgeable"]), name="judge_answer_label_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.label or 'unparsable'}: {self.knowledge_tuple_id} by {self.run_id}"
