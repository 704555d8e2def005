"""Reports, share links to reports, and evaluations of scores."""

from collections.abc import Mapping
from typing import Any

from django.db import models, transaction
from django.db.models import Q
from django.urls import reverse
from django.utils.functional import cached_property

from annotation.models import Round
from kgharvest.access import visible
from kgharvest.accounts.models import person_or_null
from kgharvest.jobs.models import JobQuerySet
from kgharvest.models import Job, LanguageModel, Project, RelationSet

HEADLINE = ("n_tasks", "n_complete", "n_judgments")


class ReportQuerySet(models.QuerySet):
    def visible_to(self, user):
        """Return the reports of the user's projects, or all reports for superusers and the operator."""
        return visible(self, user, "round__project")

    def archived(self, is_archived: bool = True):
        """Return archived reports, or all others. An archived round also archives its reports."""
        current = Q(archived_at=None, round__archived_at=None)
        return self.filter(~current if is_archived else current)

    def for_list(self):
        """Defer the documents, which can be megabytes in size."""
        return self.defer("document", "abridged", "method").select_related("round__project", "created_by")


class Report(models.Model):
    """A frozen report on a round. `document` is its JSON; pages and files only render it.

    headline: values shown in lists of reports. abridged: the part of the document that pages show; empty or incomplete
    in old reports. method: paragraphs on the statistical methods.
    """

    round = models.ForeignKey(Round, on_delete=models.PROTECT, related_name="reports")
    document = models.JSONField()
    headline = models.JSONField(default=dict)
    abridged = models.JSONField(default=dict)
    method = models.TextField()
    code_version = models.CharField(max_length=100)
    created_by = person_or_null()
    created_at = models.DateTimeField()
    archived_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = ReportQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.round}, {self.created_at:%Y-%m-%d %H:%M}"

    def save(self, *args, **kwargs) -> None:
        from evaluation.reports.document import abridged
        from evaluation.reports.report_sections import sections_of
        from evaluation.reports.sections.rates import scores_by_relation

        self.headline = {name: self.document[name] for name in HEADLINE} | {"alpha": self.document["alpha"]["value"]}
        for section in sections_of(self.document):
            self.headline |= section.headline(self.document[section.key])
        self.abridged = abridged(self.document)
        with transaction.atomic():
            super().save(*args, **kwargs)
            self.scores_of_relations.all().delete()
            ScoresOfRelation.objects.bulk_create(
                ScoresOfRelation(report=self, relation=relation, document=document)
                for relation, document in scores_by_relation(self.document).items()
            )

    @property
    def project(self) -> Project:
        return self.round.project

    @property
    def is_archived(self) -> bool:
        return self.archived_at is not None or self.round.is_archived

    @property
    def document_for_pages(self) -> Mapping[str, Any]:
        """The abridged document. In old reports, it lacks curves; then the whole document is returned."""
        return self.abridged if "scored_relations" in self.abridged else self.document

    def scores_of(self, relation: str) -> Mapping[str, Any] | None:
        """Return the part of the document for figures of one relation's scores, or None.

        New reports store this part separately, because loading the whole document takes 0.25 s for hundreds of
        relations.
        """
        from evaluation.reports.sections.rates import scores_by_relation

        stored = self.scores_of_relations.filter(relation=relation).values_list("document", flat=True).first()
        return stored or scores_by_relation(self.document).get(relation)

    def get_absolute_url(self) -> str:
        return reverse("evaluation:report", args=[self.pk])

    @cached_property
    def tuples_url(self) -> str:
        """URL of the tuples page, cached because hundreds of numbers link to it."""
        return reverse("evaluation:tuples", args=[self.pk])


class StudyQuerySet(models.QuerySet):
    visible_to = visible


class Study(models.Model):
    """A study created from a study file (see evaluation.studies).

    document: the validated study file, with the relations of its relation files. relation_set: set of the relations
    that are written in the file; None until they are imported. harvest_keys: `unique_key` of each harvest, in the order
    of the file; empty until the harvests are queued. section_keys: `unique_key` of the job of each entry, by section,
    in the order of the file; empty until the jobs are queued. round: None until its draft is created. report: the first
    report on the complete round since the last change of report options, judges, or published numbers.
    """

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="studies")
    name = models.SlugField(max_length=100)
    document = models.JSONField()
    relation_set = models.OneToOneField(
        RelationSet, on_delete=models.SET_NULL, null=True, blank=True, related_name="study"
    )
    harvest_keys = models.JSONField(default=list, db_default=[], blank=True, editable=False)
    section_keys = models.JSONField(default=dict, db_default={}, blank=True, editable=False)
    round = models.OneToOneField(Round, on_delete=models.SET_NULL, null=True, blank=True, related_name="study")
    report = models.ForeignKey(Report, on_delete=models.SET_NULL, null=True, blank=True, related_name="studies")
    created_by = person_or_null()
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)

    objects = StudyQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        verbose_name_plural = "studies"
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="study_project_name_unique")]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("evaluation:study", args=[self.pk])


class ScoresOfRelation(models.Model):
    """The part of a report's document that figures of one relation's scores need.

    relation: the relation's name in the document.
    """

    report = models.ForeignKey(Report, on_delete=models.CASCADE, related_name="scores_of_relations")
    relation = models.TextField()
    document = models.JSONField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["report", "relation"], name="scores_of_relation_report_relation_unique")
        ]

    def __str__(self) -> str:
        return f"scores of {self.relation} in report {self.report_id}"


class ReportShareQuerySet(models.QuerySet):
    def usable(self, now):
        return self.filter(revoked_at=None, expires_at__gt=now)


class ReportShare(models.Model):
    """A link that gives everyone who has it access to a frozen report.

    name: recipient. token_hash: SHA-256 of the link's secret, which is not stored. password: hashed like account
    passwords; empty if not required. with_statements: False for links that were created before the option.
    with_annotators: True for links of older versions, which show tables about single annotators.
    """

    report = models.ForeignKey(Report, on_delete=models.CASCADE, related_name="shares")
    name = models.CharField(max_length=100)
    token_hash = models.CharField(max_length=64, unique=True)
    password = models.CharField(max_length=128, blank=True)
    with_statements = models.BooleanField(
        "Statements",
        default=False,
        db_default=False,
        help_text="Show the statements with their verdicts and numbers of labels behind every number, as of the "
        "report. Annotators and comments are never shown with them.",
    )
    with_annotators = models.BooleanField(default=False, db_default=True, editable=False)
    created_by = person_or_null()
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = ReportShareQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"link {self.pk} to report {self.report_id}"

    def status(self, now) -> str:
        """Return "open", "revoked", or "over"."""
        if self.revoked_at:
            return "revoked"
        return "open" if now < self.expires_at else "over"


class ScoreEvaluation(Job):
    """Job that evaluates an LM's scores on known facts and false tuples. A worker or a command runs the job.

    document: JSON of `evaluate_scores` (docs/report-json.md), empty until the job succeeds. samples: facts and false
    tuples with their scores; empty in old evaluations.
    """

    KIND = "evaluate_scores"

    language_model = models.ForeignKey(LanguageModel, on_delete=models.PROTECT, related_name="score_evaluations")
    document = models.JSONField(default=dict)
    samples = models.JSONField(default=list)

    objects = JobQuerySet.as_manager()

    def __str__(self) -> str:
        return f"Scores of {self.language_model.short_name}"

    def get_absolute_url(self) -> str:
        return reverse("evaluation:scores", args=[self.pk])
