"""Panels, on which people for a round are found, and the submissions of those who came."""

from __future__ import annotations

import secrets

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.urls import reverse

from annotation.judging.models import Annotator
from annotation.rounds.models import Round
from kgharvest.access import visible
from kgharvest.contrib.recruiting.panels.identifiers import decrypted
from kgharvest.contrib.recruiting.panels.links import LONGEST_VALUE, check_return_address

LONGEST_URL = 500  # characters
LONGEST_CODE = 50
MOST_PLACES = 100_000
MOST_MONEY = 10_000_00  # minor units, for one person

parameter_name = RegexValidator(r"\A[A-Za-z][A-Za-z0-9_.-]*\Z", "Give a name of letters, digits, _, . and -.")
currency_code = RegexValidator(r"\A[A-Z]{3}\Z", "Give three capital letters, such as USD.")
code_of_letters = RegexValidator(r"\A[A-Za-z0-9_-]+\Z", "Give a code of letters, digits, - and _.")


def new_entry_token() -> str:
    return secrets.token_urlsafe(16)


class Platform(models.TextChoices):
    """Where people come from. What each can do by itself: kgharvest.contrib.recruiting.platforms."""

    LINK = "link", "Any panel, by link"
    CONNECT = "connect", "CloudResearch Connect"
    SONA = "sona", "SONA Systems"
    PROLIFIC = "prolific", "Prolific"
    MTURK = "mturk", "Amazon Mechanical Turk (closed)"

    @property
    def is_closed(self) -> bool:
        """True if the platform no longer exists. Its panels stay readable; nothing is sent to it."""
        return self is Platform.MTURK

    @property
    def product_name(self) -> str:
        return self.label.removesuffix(" (closed)")


class PanelQuerySet(models.QuerySet):
    def visible_to(self, user):
        """Return the panels of the user's projects; all of them for a superuser and for the operator."""
        return visible(self, user, "round__project")


class Panel(models.Model):
    """One recruitment of people for a round: places, what one is for and pays, and the codes that end it.

    Money is in minor units of `currency` (cents). token: of the entry link. external_id: the platform's id of the
    study, empty until the study exists. platform_options: options of this platform only, under the names of its form.
    ended_reason: why it is paused or stopped, in a sentence. reconcile_error: why the platform could not be asked last.
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
    name = models.SlugField(max_length=100, help_text="Letters, digits, - and _; the round has no other panel of it.")
    platform = models.CharField(max_length=8, choices=Platform, default=Platform.LINK)
    status = models.CharField(max_length=9, choices=Status, default=Status.DRAFT, editable=False)
    ended_reason = models.CharField(max_length=500, blank=True, editable=False)
    token = models.CharField(max_length=32, unique=True, default=new_entry_token, editable=False)
    places = models.PositiveIntegerField(
        default=10, validators=[MinValueValidator(1), MaxValueValidator(MOST_PLACES)], help_text="People who are paid."
    )
    statements_per_place = models.PositiveIntegerField(
        "statements per person",
        default=50,
        validators=[MinValueValidator(1), MaxValueValidator(100_000)],
        help_text="After so many judgments, gold among them, a person is done and gets the completion code.",
    )
    currency = models.CharField(max_length=3, default="USD", validators=[currency_code])
    reward = models.PositiveIntegerField(
        default=0, validators=[MaxValueValidator(MOST_MONEY)], help_text="For one place, in cents."
    )
    screen_out_reward = models.PositiveIntegerField(
        "reward of whom a check turns away",
        default=0,
        validators=[MaxValueValidator(MOST_MONEY)],
        help_text="In cents, for the time it took.",
    )
    estimated_minutes = models.PositiveIntegerField(
        default=10, validators=[MinValueValidator(1), MaxValueValidator(24 * 60)], help_text="For one place."
    )
    hourly_floor = models.PositiveIntegerField(
        "lowest hourly pay",
        default=0,
        validators=[MaxValueValidator(MOST_MONEY)],
        help_text="In cents, on active time: below it the panel pauses and says which bonus makes it good.",
    )
    participant_parameter = models.CharField(max_length=50, default="participant", validators=[parameter_name])
    study_parameter = models.CharField(max_length=50, blank=True, default="study", validators=[parameter_name])
    session_parameter = models.CharField(max_length=50, blank=True, default="session", validators=[parameter_name])
    completion_code = models.CharField(
        max_length=LONGEST_CODE,
        blank=True,
        validators=[code_of_letters],
        help_text="Shown once the last statement is judged, and never before.",
    )
    screen_out_code = models.CharField(
        "code of whom a check turns away", max_length=LONGEST_CODE, blank=True, validators=[code_of_letters]
    )
    quota_full_code = models.CharField(
        "code of who comes too late", max_length=LONGEST_CODE, blank=True, validators=[code_of_letters]
    )
    completion_url = models.CharField(
        "return address",
        max_length=LONGEST_URL,
        blank=True,
        validators=[check_return_address],
        help_text="Where people go from here, with {code}, {participant}, {study} and {session} where wanted.",
    )
    screen_out_url = models.CharField(
        "return address of whom a check turns away",
        max_length=LONGEST_URL,
        blank=True,
        validators=[check_return_address],
    )
    quota_full_url = models.CharField(
        "return address of who comes too late",
        max_length=LONGEST_URL,
        blank=True,
        validators=[check_return_address],
    )
    is_sandbox = models.BooleanField(
        "sandbox", default=True, help_text="Trial run. On Mechanical Turk: nobody was paid."
    )
    external_id = models.CharField(max_length=100, blank=True, editable=False)
    platform_options = models.JSONField(default=dict, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+", editable=False
    )
    created_at = models.DateTimeField(auto_now_add=True)
    reconciled_at = models.DateTimeField(null=True, blank=True, editable=False)
    reconcile_error = models.CharField(max_length=300, blank=True, editable=False)

    objects = PanelQuerySet.as_manager()

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
    def is_platform_closed(self) -> bool:
        return Platform(self.platform).is_closed

    def get_absolute_url(self) -> str:
        return reverse("recruiting:panel", args=[self.round.path, self.name])


class SubmissionQuerySet(models.QuerySet):
    def holding_places(self):
        """Return those that take one of the panel's places: people at work, done, or paid."""
        return self.filter(status__in=Submission.HOLDING)

    def to_review(self):
        return self.filter(status=Submission.Status.COMPLETED)


class Submission(models.Model):
    """One person's taking part in a panel, from the entry link to pay.

    participant, session: as the platform names the person and this taking part, encrypted; *_digest find them again.
    study: as the link that they came by names it. browser_digest: of the secret cookie of the browser that holds the
    place; empty for places taken before there was one.
    annotator: who they are in the round, None until they join. entered_at: at the link. completed_at: when their last
    judgment was stored, and the code could be shown. ended_at: of the last change of status that ends it.
    platform_status, platform_status_at: what the platform last said and when it says that was; what is older is not
    believed, as events come in any order. approves_itself_at: when the platform will approve by itself.
    """

    class Status(models.TextChoices):
        ACTIVE = "active"
        COMPLETED = "completed", "completed, not reviewed"
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
        """The platform's name for the person. Raises Unreadable."""
        return decrypted(self.participant) if self.participant else ""

    @property
    def session_id(self) -> str:
        """The platform's id of this submission. Raises Unreadable."""
        return decrypted(self.session) if self.session else ""
