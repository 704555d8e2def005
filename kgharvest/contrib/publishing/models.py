"""Preregistrations, paper metadata, and replication packages."""

from typing import Any, NoReturn

from django.db import models
from django.urls import reverse

from annotation.models import Round
from evaluation.models import Report
from kgharvest.access import visible
from kgharvest.accounts.models import person_or_null
from kgharvest.errors import DomainError
from kgharvest.jobs.models import JobQuerySet
from kgharvest.models import Job


def refuse_change(*args: Any, **kwargs: Any) -> NoReturn:
    message = "A preregistration cannot be changed or deleted. Freeze a new version before the first judgment."
    raise DomainError("Frozen", message)


class PreregistrationQuerySet(models.QuerySet):
    def visible_to(self, user):
        """Return preregistrations in the user's projects, or all for a superuser and the operator."""
        return visible(self, user, "round__project")

    update = delete = refuse_change


class Preregistration(models.Model):
    """A version of a round's preregistration. It is deleted only with its round.

    document: frozen document, described in docs/preregistration.md. sha256: hash of the document's canonical JSON,
    which is the downloadable JSON file. version: version number, starting at 1; the last version is in force.
    """

    round = models.ForeignKey(Round, on_delete=models.CASCADE, related_name="preregistrations")
    version = models.PositiveSmallIntegerField()
    document = models.JSONField()
    sha256 = models.CharField(max_length=64)
    created_by = person_or_null()
    frozen_at = models.DateTimeField()

    objects = PreregistrationQuerySet.as_manager()

    class Meta:
        db_table = "evaluation_preregistration"
        ordering = ["-version"]
        constraints = [
            models.UniqueConstraint(fields=["round", "version"], name="preregistration_round_version_unique"),
            models.CheckConstraint(condition=models.Q(version__gte=1), name="preregistration_version_positive"),
        ]

    def __str__(self) -> str:
        return f"preregistration {self.version} of {self.round}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self.pk is not None:
            refuse_change()
        super().save(*args, **kwargs)

    delete = refuse_change

    def get_absolute_url(self) -> str:
        return reverse("publishing:preregistration", args=[self.round.path, self.version])


class PaperStatement(models.Model):
    """An author's answer to a question in statements/services.py about a study.

    All reports on the round use the answer.
    """

    round = models.ForeignKey(Round, on_delete=models.CASCADE, related_name="paper_statements")
    key = models.SlugField(max_length=50)
    text = models.TextField()
    changed_by = person_or_null()
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "evaluation_paperstatement"  # created when the models belonged to the app `evaluation`
        ordering = ["round", "key"]
        constraints = [
            models.UniqueConstraint(fields=["round", "key"], name="paper_statement_round_key_unique"),
            models.CheckConstraint(condition=~models.Q(text=""), name="paper_statement_says_something"),
        ]

    def __str__(self) -> str:
        return f"{self.key} of {self.round_id}"


class PaperPack(Job):
    """Job that creates the replication package of a report.

    sha256, n_bytes: hash and size of the file of a finished job.
    """

    KIND = "pack"

    report = models.ForeignKey(Report, on_delete=models.CASCADE, related_name="packs")
    sha256 = models.CharField(max_length=64, blank=True)
    n_bytes = models.PositiveBigIntegerField(default=0)

    objects = JobQuerySet.as_manager()

    class Meta:
        db_table = "evaluation_paperpack"

    def __str__(self) -> str:
        return f"pack {self.pk} of report {self.report_id}"

    def get_absolute_url(self) -> str:
        return reverse("publishing:pack", args=[self.report_id])

    @property
    def name(self) -> str:
        """Return the download file name."""
        return f"{self.report.round.name}-report-{self.report_id}.zip"
