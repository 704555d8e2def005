"""Probes: LAMA-style measurements of an LM on known facts with several prompt systems."""

from django.db import models
from django.urls import reverse

from kgharvest.jobs.models import JobQuerySet
from kgharvest.models import Job, LanguageModel


class Probe(Job):
    """Job that probes an LM for known facts with several prompt systems, as in LAMA. A worker or the command runs it.

    methods: in table order. facts: name of the fact source. payload: `ProbeParams`. revision, code_version: those used
    for the records so far. vocabulary: "full", or a description of the words among which ranks are counted. document:
    the JSON of docs/probing.md, empty until the job has succeeded.
    """

    KIND = "probe"

    language_model = models.ForeignKey(LanguageModel, on_delete=models.PROTECT, related_name="probes")
    name = models.CharField(max_length=200)
    methods = models.JSONField()
    facts = models.CharField(max_length=200)
    revision = models.CharField(max_length=100, blank=True)
    code_version = models.CharField(max_length=100, blank=True)
    vocabulary = models.CharField(max_length=300, default="full")
    document = models.JSONField(default=dict)

    objects = JobQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.name} × {self.language_model.short_name}"

    def get_absolute_url(self) -> str:
        return reverse("probing:probe", args=[self.pk])


class TextTask(Job):
    """Job that classifies texts or extracts objects from sentences. A worker runs it.

    payload: LM placement, options, and relations. lines: JSON lines of texts or facts. records: one per method, as in
    docs/text-tasks.md; empty until the job has succeeded.
    """

    KIND = "text-task"

    class Task(models.TextChoices):
        CLASSIFY = "classify", "classify texts"
        EXTRACT = "extract", "extract objects from sentences"

    task = models.CharField(max_length=10, choices=Task)
    language_model = models.ForeignKey(LanguageModel, on_delete=models.PROTECT, related_name="text_tasks")
    name = models.CharField(max_length=200)
    lines = models.TextField()
    records = models.JSONField(default=list)

    objects = JobQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.name} × {self.language_model.short_name}"

    def get_absolute_url(self) -> str:
        return reverse("probing:text_task", args=[self.pk])


class ProbedRelation(models.Model):
    """Frozen copy of a relation for one probe. prompts: the manual prompt first.

    facts: {"train": [[subject, object], ...], "dev": ..., "test": ...}. origins: prompts by origin, such as "mined".
    type: one of RELATION_TYPES. fault: sentences that explain why results of some or all methods are missing.
    """

    probe = models.ForeignKey(Probe, on_delete=models.CASCADE, related_name="relations")
    name = models.CharField(max_length=200)
    type = models.CharField(max_length=5)
    prompts = models.JSONField()
    facts = models.JSONField()
    origins = models.JSONField(default=dict, db_default={})
    fault = models.TextField(blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["probe", "name"], name="probed_relation_probe_name_unique")]

    def __str__(self) -> str:
        return self.name


class ProbeRecord(models.Model):
    """Scores and costs of a method on one relation. is_control: measured on the LM with random weights.

    p1, p10, mrr, nll (nats): on test facts; dev_nll: on dev facts. ranks: of the correct object of each test fact, in
    the same order for all methods; empty in older records. left_out: {part: {reason: number of facts}}.
    effective_prompts: exponential of the entropy of the weights. forwards: sequences that the LM read while learning;
    seconds: learning time. combine, temperature: how the answers to several prompts are combined; empty and None for
    methods without prompts. parts_of_speech: number of replaced test tokens by tag, for methods that rewrite questions.
    """

    relation = models.ForeignKey(ProbedRelation, on_delete=models.CASCADE, related_name="records")
    method = models.CharField(max_length=30)
    is_control = models.BooleanField()
    n_train = models.PositiveIntegerField()
    n_dev = models.PositiveIntegerField()
    n_test = models.PositiveIntegerField()
    left_out = models.JSONField()
    ranks = models.JSONField(default=list, db_default=[])
    p1 = models.FloatField()
    p10 = models.FloatField()
    mrr = models.FloatField()
    nll = models.FloatField()
    dev_nll = models.FloatField()
    n_prompts = models.PositiveIntegerField()
    effective_prompts = models.FloatField(null=True)
    n_parameters = models.PositiveBigIntegerField()
    forwards = models.PositiveBigIntegerField()
    seconds = models.FloatField()
    combine = models.CharField(max_length=10, blank=True)
    temperature = models.FloatField(null=True)
    parts_of_speech = models.JSONField(default=dict, db_default={})

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["relation", "method", "is_control"], name="probe_record_relation_method_unique"
            )
        ]

    def __str__(self) -> str:
        return f"{self.method}, {self.relation_id}"


class LearnedPrompt(models.Model):
    """Prompt learned, weighted, or rewritten by a method; prompts of controls are not stored.

    text: readable form. rewritten_from, part: the original question and its part if `text` is a rewrite that corrected
    the LM's answer. Older versions stored the first rewrites of dev, without a part. segments, slots: tokens as in
    EncodedPrompt; -1 - i is soft token i. vectors: vectors of the soft tokens, as in SerializedPrompt. nearest: nearest
    words and distances for each soft token. learned: slots and soft words with their originals, see `learned_words`.
    """

    record = models.ForeignKey(ProbeRecord, on_delete=models.CASCADE, related_name="prompts")
    text = models.TextField()
    rewritten_from = models.TextField(blank=True)
    part = models.CharField(max_length=5, blank=True, default="", db_default="")
    weight = models.FloatField()
    segments = models.JSONField(default=list)
    slots = models.JSONField(default=list)
    vectors = models.BinaryField(blank=True)
    nearest = models.JSONField(default=list)
    learned = models.JSONField(default=list, db_default=[])

    class Meta:
        ordering = ["-weight", "pk"]

    def __str__(self) -> str:
        return self.text
