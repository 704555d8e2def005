"""Probes: an LM asked for known facts with several prompt systems, and what they learned."""

from __future__ import annotations

from django.db import models
from django.urls import reverse

from kgharvest.jobs.models import JobQuerySet
from kgharvest.models import Job, LanguageModel


class Probe(Job):
    """An LM asked for known facts with several prompt systems, LAMA's way; work of a worker, or of the command.

    methods: in the order of the tables. facts: what the facts are called. payload: `ProbeParams`. revision,
    code_version: of what has measured so far. vocabulary: "full", or among which words ranks are counted. document: the
    JSON of docs/probing.md, empty until the job has succeeded.
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


class ProbedRelation(models.Model):
    """A relation as one probe asks it: its prompts, the one that people wrote first, and its facts are frozen here.

    facts: {"train": [[subject, object], ...], "dev": ..., "test": ...}. type: one of RELATION_TYPES. fault: why the LM
    cannot be asked for it, or not by some method, in sentences.
    """

    probe = models.ForeignKey(Probe, on_delete=models.CASCADE, related_name="relations")
    name = models.CharField(max_length=200)
    type = models.CharField(max_length=5)
    prompts = models.JSONField()
    facts = models.JSONField()
    fault = models.TextField(blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["probe", "name"], name="probed_relation_probe_name_unique")]

    def __str__(self) -> str:
        return self.name


class ProbeRecord(models.Model):
    """What a method learned of one relation, and how it does there; is_control: of the LM with random weights.

    p1, p10, mrr, nll (nats): on the test facts; dev_nll: on those of dev. left_out: {part: {reason: facts}}.
    effective_prompts: exp of the entropy of the weights. forwards: sequences read while learning, which took `seconds`.
    combine, temperature: how the learned prompts answer together; empty and None for a method that learns no prompts.
    """

    relation = models.ForeignKey(ProbedRelation, on_delete=models.CASCADE, related_name="records")
    method = models.CharField(max_length=30)
    is_control = models.BooleanField()
    n_train = models.PositiveIntegerField()
    n_dev = models.PositiveIntegerField()
    n_test = models.PositiveIntegerField()
    left_out = models.JSONField()
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
    """A prompt as a method learned or weighed it, or a rewrite; of a control's methods none is kept.

    text: as people read it. rewritten_from: the question before, where `text` is a rewrite. segments, slots: its
    tokens, as in EncodedPrompt; -1 - i stands for its soft word i. vectors: of its soft words, as in
    SerializedPrompt. nearest: for each soft word the nearest words, each with its distance.
    """

    record = models.ForeignKey(ProbeRecord, on_delete=models.CASCADE, related_name="prompts")
    text = models.TextField()
    rewritten_from = models.TextField(blank=True)
    weight = models.FloatField()
    segments = models.JSONField(default=list)
    slots = models.JSONField(default=list)
    vectors = models.BinaryField(blank=True)
    nearest = models.JSONField(default=list)

    class Meta:
        ordering = ["-weight", "pk"]

    def __str__(self) -> str:
        return self.text
