"""Recruitment panels of a round, and the submissions of their participants."""

import secrets

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.urls import reverse

from annotation.judging.models import Annotator
from annotation.rounds.models import Round
from kgharvest.contrib.recruiting.panels.identifiers import decrypted
from kgharvest.contrib.recruiting.panels.links import LONGEST_VALUE, check_return_address

MOST_PLACES = 100_000
MOST_MONEY = 10_000_00  # maximum per participant, in minor units

parameter_name = RegexValidator(
    r"\A[A-Za-z][A-Za-z0-9_.-]*\Z", "Use letters, digits, underscores, periods, and hyphens, starting with a letter."
)
currency_code = RegexValidator(r"\A[A-Z]{3}\Z", "Enter three capital letters, for example USD.")
code_of_letters = RegexValidator(r"\A[A-Za-z0-9_-]+\Z", "Use letters, digits, hyphens, and underscores.")


def new_entry_token() -> str:
    return secrets.token_urlsafe(16)


def _code(**options: str) -> models.CharField:
    return models.CharField(max_length=50, blank=True, validators=[code_of_letters], **options)


def _url(**options: str) -> models.CharField:
    return models.CharField(max_length=500, blank=True, validators=[check_return_address], **options)


class Platform(models.TextChoices):
    """Recruiting platforms. kgharvest.contrib.recruiting.platforms defines their operations."""

    LINK = "link", "Other panel (link only)"
    CONNECT = "connect", "CloudResearch Connect"
    SONA = "sona", "SONA Systems"
    PROLIFIC = "prolific", "Prolific"
    MTURK = "mturk", "Amazon Mechanical Turk (closed)"

    @property
    def is_closed(self) -> bool:
        """True if the platform no longer exists. Its panels are then read-only, and nothing is sent to it."""
        return self is Platform.MTURK

    @property
    def product_name(self) -> str:
        return self.label.removesuffix(" (closed)")


class Panel(models.Model):
    """Recruitment of participants for a round.

    Defines the places, the statements and reward per place, and completion codes.

    Money is in minor units of `currency` (cents). token: part of the entry link. external_id: the platform's study id,
    empty until the study exists. platform_options: options specific to this platform, by the field names of its form.
    ended_reason: a sentence that says why the panel is paused or stopped. reconcile_error: failure of the last
    reconciliation.
    """

    class Status(models.TextChoices):
        DRAFT = "draft"
        PUBLISHED = "published"
        PAUSED = "paused"
        STOPPED = "stopped"

    OPTIONS = (
        "name", "platform", "places", "statements_per_place", "currency", "reward", "screen_out_reward",
        "estimated_minutes", "hourly_floor", "participant_parameter", "study_parameter", "session_parameter",
        "completion_code", "screen_out_code", "quota_full_code", "completion_url", "screen_out_url", "quota_full_url",
        "is_sandbox",
    )  # fmt: skip

    round = models.ForeignKey(Round, on_delete=models.PROTECT, related_name="panels")
    name = models.SlugField(
        max_length=100, help_text="Letters, digits, hyphens, and underscores; unique within the round."
    )
    platform = models.CharField(max_length=8, choices=Platform, default=Platform.LINK)
    status = models.CharField(max_length=9, choices=Status, default=Status.DRAFT, editable=False)
    ended_reason = models.CharField(max_length=500, blank=True, editable=False)
    token = models.CharField(max_length=32, unique=True, default=new_entry_token, editable=False)
    places = models.PositiveIntegerField(
        default=10,
        validators=[MinValueValidator(1), MaxValueValidator(MOST_PLACES)],
        help_text="Number of paid participants.",
    )
    statements_per_place = models.PositiveIntegerField(
        "statements per participant",
        default=50,
        validators=[MinValueValidator(1), MaxValueValidator(100_000)],
        help_text="Judgments per participant, including gold. The completion code appears after the last one.",
    )
    currency = models.CharField(max_length=3, default="USD", validators=[currency_code])
    reward = models.PositiveIntegerField(
        default=0, validators=[MaxValueValidator(MOST_MONEY)], help_text="Pay per completed place, in cents."
    )
    screen_out_reward = models.PositiveIntegerField(
        "screen-out reward",
        default=0,
        validators=[MaxValueValidator(MOST_MONEY)],
        help_text="Pay for the time of a participant who fails the comprehension check, in cents.",
    )
    estimated_minutes = models.PositiveIntegerField(
        default=10, validators=[MinValueValidator(1), MaxValueValidator(24 * 60)], help_text="Minutes per place."
    )
    hourly_floor = models.PositiveIntegerField(
        "minimum hourly rate",
        default=0,
        validators=[MaxValueValidator(MOST_MONEY)],
        help_text="Cents per hour of active time. If the median falls below it, the panel pauses and lists the "
        "missing bonuses. 0: no minimum.",
    )
    participant_parameter = models.CharField(max_length=50, default="participant", validators=[parameter_name])
    study_parameter = models.CharField(max_length=50, blank=True, default="study", validators=[parameter_name])
    session_parameter = models.CharField(max_length=50, blank=True, default="session", validators=[parameter_name])
    completion_code = _code(help_text="Shown only after the participant has judged the last statement.")
    screen_out_code = _code(verbose_name="screen-out code")
    quota_full_code = _code(verbose_name="quota-full code")
    completion_url = _url(
        verbose_name="return URL",
        help_text="URL opened on completion. Optional placeholders: {code}, {participant}, {study}, and {session}.",
    )
    screen_out_url = _url(verbose_name="screen-out URL")
    quota_full_url = _url(verbose_name="quota-full URL")
    is_sandbox = models.BooleanField(
        "sandbox", default=True, help_text="Trial run. On Mechanical Turk, sandbox participants were not paid."
    )
    external_id = models.CharField(max_length=100, blank=True, editable=False)
    platform_options = models.JSONField(default=dict, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+", editable=False
    )
    created_at = models.DateTimeField(auto_now_add=True)
    reconciled_at = models.DateTimeField(null=True, blank=True, editable=False)
    reconcile_error = models.CharField(max_length=300, blank=True, editable=False)

    class Meta:
        db_table = "annotation_panel"
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["round", "name"], name="panel_round_name_unique"),
            models.UniqueConstraint(
                fields=["platform", "external_id"], condition=~Q(external_id=""), name="panel_external_id_unique"
            ),
            models.CheckConstraint(
                condition=Q(status__in=["draft", "published", "paused", "stopped"]), name="panel_status_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def project(self):
        return self.round.project

    @property
    def hourly_reward(self) -> int:
        """Hourly rate in minor currency units, based on the estimated minutes, rounded down."""
        return self.reward * 60 // self.estimated_minutes

    @property
    def is_platform_closed(self) -> bool:
        return Platform(self.platform).is_closed

    def get_absolute_url(self) -> str:
        return reverse("recruiting:panel", args=[self.round.path, self.name])


class SubmissionQuerySet(models.QuerySet):
    def holding_places(self):
        """Return the submissions that occupy a place because they are active, completed, or approved."""
        return self.filter(status__in=Submission.HOLDING)


class Submission(models.Model):
    """Participation of one person in a panel, from the entry link to payment.

    participant, session: the platform's ids of the person and the submission, encrypted. participant_digest,
    session_digest: lookup keys of these ids. study: study id in the entry link. browser_digest: digest of the secret
    cookie of the browser that holds the place; empty for places taken before this cookie was introduced. annotator:
    None until the participant joins. entered_at: time when the entry link was opened. completed_at: time of the last
    judgment, after which the code can be shown. ended_at: time when the submission got its final status.
    platform_status, platform_status_at: newest status from the platform, and the time of this status. Older statuses
    are ignored, because events arrive in any order. approves_itself_at: time of the platform's automatic approval.
    """

    class Status(models.TextChoices):
        ACTIVE = "active"
        COMPLETED = "completed", "awaiting review"
        APPROVED = "approved"
        REJECTED = "rejected"
        RETURNED = "returned"
        TIMED_OUT = "timed out"
        SCREENED_OUT = "screened out"

    HOLDING = (Status.ACTIVE, Status.COMPLETED, Status.APPROVED)
    ENDED = (Status.APPROVED, Status.REJECTED, Status.RETURNED, Status.TIMED_OUT, Status.SCREENED_OUT)

    panel = models.ForeignKey(Panel, on_delete=models.PROTECT, related_name="submissions")
    annotator = models.ForeignKey(
        Annotator, on_delete=models.PROTECT, null=True, blank=True, related_name="submissions"
    )
    participant = models.TextField()
    participant_digest = models.CharField(max_length=64)
    session = models.TextField(blank=True)
    study = models.CharField(max_length=LONGEST_VALUE, blank=True)
    session_digest = models.CharField(max_length=64)
    browser_digest = models.CharField(max_length=64, blank=True, default="", db_default="")
    status = models.CharField(max_length=12, choices=Status, default=Status.ACTIVE)
    platform_status = models.CharField(max_length=30, blank=True)
    platform_status_at = models.DateTimeField(null=True, blank=True)
    entered_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    approves_itself_at = models.DateTimeField(null=True, blank=True)

    objects = SubmissionQuerySet.as_manager()

    class Meta:
        db_table = "annotation_submission"
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["panel", "session_digest"], name="submission_panel_session_unique"),
            models.CheckConstraint(
                condition=Q(
                    status__in=[
                        "active", "completed", "approved", "rejected", "returned", "timed out", "screened out",
                    ]
                ),
                name="submission_status_known",
            ),
            models.UniqueConstraint(
                fields=["panel", "participant_digest"],
                condition=Q(status__in=["active", "completed", "approved"]),
                name="submission_participant_holds_one_place",
            ),
        ]  # fmt: skip
        indexes = [models.Index(fields=["panel", "status"], name="submission_panel_status")]

    def __str__(self) -> str:
        return f"submission {self.pk}"

    @property
    def participant_id(self) -> str:
        """The platform's id of the participant. It is empty once erased. Raises Unreadable."""
        return decrypted(self.participant) if self.participant else ""

    @property
    def session_id(self) -> str:
        """The platform's id of the submission. It is empty if unknown or erased. Raises Unreadable."""
        return decrypted(self.session) if self.session else ""
