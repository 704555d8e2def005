"""Runs and answers of LM judges that label the tuples of a round.

A judge's label is not a judgment. It does not affect verdicts, counts, or agreement, and annotators never see it.
"""

from typing import Any

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
OUT_OF_BUDGET = "out of budget"  # stage of a run that stopped at its budget


class JudgeKind(models.TextChoices):
    CHAT = "chat", "chat model behind an OpenAI-compatible endpoint"
    CAUSAL = "causal", "causal LM (most likely of three answers)"
    SCORE = "score", "LM score with threshold"
    FILE = "file", "answers from a file"


def _between(least: float, most: float) -> list[Any]:
    return [MinValueValidator(least), MaxValueValidator(most)]


def _amount(*name: str, **options: Any) -> models.DecimalField:
    return models.DecimalField(*name, max_digits=12, decimal_places=4, validators=_between(0, MOST_MONEY), **options)


class JudgeRunQuerySet(JobQuerySet):
    def for_list(self):
        return self.select_related("round__project", "created_by").order_by("-pk")


class JudgeRun(Job):
    """A run of an LM judge over the tuples of a round. Its prompt and LM never change.

    A worker or the command `judge_tuples` executes the run. OPTIONS: fields that researchers choose, in the JSON spec
    and the form. LIMITS: options that can change when a stopped run continues. prompt_sha256: see
    annotation.judges.runs.prompt_sha256. relation_texts: prompt texts by relation id, frozen when the run is created:
    {"instructions", "examples", ...}, or {"prompts", "seed_tuples"} for a score judge. payload: "is_trusted" is True if
    the run may send the installation's API key to any URL; "unanswered" has the numbers of prompt and completion tokens
    of replies that were not answers. panel: name of a panel of judges. The runs of a round with the same panel name
    form the panel.
    """

    KIND = "judge"
    OPTIONS = (
        "name", "model", "revision", "base_url", "prompt", "n_examples", "example_order", "temperature", "seed",
        "repeats", "threshold", "max_completion_tokens", "max_tokens_total", "budget", "prompt_price",
        "completion_price", "n_parallel", "requests_per_minute", "timeout_s", "device", "dtype", "limit", "panel",
    )  # fmt: skip
    LIMITS = ("max_tokens_total", "budget")

    round = models.ForeignKey(Round, on_delete=models.PROTECT, related_name="judge_runs")
    name = models.SlugField(max_length=100, help_text="Letters, digits, hyphens, and underscores. Unique in the round.")
    judge_kind = models.CharField("kind", max_length=6, choices=JudgeKind)
    model = models.CharField(max_length=500, help_text="Model id at the endpoint, or LM name as in harvests.")
    revision = models.CharField(max_length=100, blank=True, help_text="Revision of a local LM.")
    base_url = models.CharField(
        "base URL",
        max_length=500,
        blank=True,
        help_text="URL without /chat/completions. Leave empty for the default endpoint.",
    )
    prompt = models.TextField(
        blank=True,
        max_length=LONGEST_PROMPT,
        help_text="Must contain {statement}. Optional: {instructions}, {relation}, and {examples}. "
        "Leave empty for the default prompt.",
    )
    n_examples = models.PositiveSmallIntegerField(
        "examples",
        default=0,
        validators=[MaxValueValidator(20)],
        help_text="Gold statements per relation in {examples}, half of them true.",
    )
    example_order = models.PositiveIntegerField(
        "example order",
        default=0,
        validators=[MaxValueValidator(1_000_000)],
        help_text="0 alternates true and false. Other numbers are seeds of random orders, to measure order effects.",
    )
    temperature = models.FloatField(default=0, validators=_between(0, 2))
    seed = models.PositiveBigIntegerField(default=0, help_text="Sent with each request; increases by 1 per repeat.")
    repeats = models.PositiveSmallIntegerField(
        default=1,
        validators=_between(1, 99),
        help_text="Answers per tuple. The label of a tuple is the most frequent label of its answers.",
    )
    threshold = models.FloatField(
        null=True,
        blank=True,
        validators=_between(-1e6, 0),
        help_text="Minimum score of a true tuple, in nats.",
    )
    max_completion_tokens = models.PositiveIntegerField(
        "maximum completion tokens",
        default=100,
        validators=_between(1, 100_000),
        help_text="Maximum per answer. Reasoning LMs need thousands of tokens.",
    )
    max_tokens_total = models.PositiveBigIntegerField(
        "token limit",
        null=True,
        blank=True,
        validators=_between(1, MOST_TOKENS),
        help_text="Maximum number of prompt and completion tokens. The run stops before exceeding it. "
        "Leave empty for no limit.",
    )
    budget = _amount(
        null=True,
        blank=True,
        help_text="Maximum cost in the currency of the prices. The run stops before exceeding it. "
        "Leave empty for no limit.",
    )
    prompt_price = _amount("price per million prompt tokens", default=0)
    completion_price = _amount("price per million completion tokens", default=0)
    n_parallel = models.PositiveSmallIntegerField("parallel requests", default=4, validators=_between(1, 64))
    requests_per_minute = models.PositiveIntegerField(
        null=True, blank=True, validators=_between(1, 1_000_000), help_text="Leave empty for no rate limit."
    )
    timeout_s = models.PositiveSmallIntegerField("timeout (seconds)", default=60, validators=_between(1, 3600))
    device = models.CharField(
        max_length=20, default=DEFAULT_DEVICE, validators=[validate_device], help_text=f"For local LMs: {DEVICE_HELP}."
    )
    dtype = models.CharField(
        "number format",
        max_length=8,
        default=DEFAULT_DTYPE,
        db_default=DEFAULT_DTYPE,
        choices=[(name, name) for name in DTYPES],
        help_text=f"For local LMs: {DTYPE_HELP}.",
    )
    limit = models.PositiveIntegerField(
        "maximum tuples",
        null=True,
        blank=True,
        validators=_between(1, 10_000_000),
        help_text="Tuples judged by people come first. Leave empty for all tuples. Estimates need all tuples.",
    )
    panel = models.SlugField(
        max_length=100, blank=True, help_text="Runs of the round with the same panel judge together, one vote each."
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
    """An answer of a judge about one tuple in one repeat. Rows are only added, so a resumed run skips answered tuples.

    repeat: from 0. raw: text as received. label: empty if `raw` names no label. score: score in nats for a score judge,
    probability of True among the three answers for a causal LM, otherwise None. prompt_sha256: hash of the template.
    model_reported: name reported by the endpoint or the loaded LM, with fingerprint or revision, or empty. cost: in the
    currency of the run's prices. seconds: response time without rate-limit waits.
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
