"""Rounds with their options and their samples: strata of cells, draws, and judgment tasks."""

import secrets
from collections.abc import Iterable
from operator import itemgetter

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.urls import reverse
from django.utils import timezone

from annotation.judging.verdicts import IMPORTED_QUORUM, Verdict
from annotation.questionnaire.questions import BUILT_IN_QUESTIONS, Asked, BadQuestions, OnWithdrawal, parse_questions
from annotation.rounds.instructions import statement_parts
from annotation.rounds.references import BadReferenceLinks, parse_reference_links, wrong_parts
from kgharvest.access import visible
from kgharvest.accounts.models import person_or_null
from kgharvest.errors import DomainError
from kgharvest.events.models import Event, EventQuerySet
from kgharvest.models import HarvestedTuple, HarvestJob, KnowledgeTuple, LanguageModel, Project, Relation
from kgharvest.names import short_name, shortest_names


def new_join_token() -> str:
    return secrets.token_urlsafe(16)


class Layout(models.TextChoices):
    ONE = "one", "One at a time"
    PAGE = "page", "Page of statements"


class RoundNotOpen(DomainError):
    """Raised if an annotator judges in a round that is not open."""


class RoundPathConverter:
    """URL converter of Round.path, "project/name"."""

    regex = "[-a-zA-Z0-9_]+/rounds/[-a-zA-Z0-9_]+"

    def to_python(self, value: str) -> str:
        return value.replace("/rounds/", "/", 1)

    def to_url(self, path: str) -> str:
        return path.replace("/", "/rounds/", 1)


class RoundQuerySet(models.QuerySet):
    visible_to = visible

    def at(self, path: str):
        """Return the round with this path (project/name)."""
        slug, _, name = path.rpartition("/")
        return self.filter(project__slug=slug, name=name)

    def archived(self, is_archived: bool = True):
        return self.filter(archived_at__isnull=not is_archived)


DEFAULT_SAMPLE_SIZE = 20  # statements per harvest, on the form of a new round
LONGEST_INSTRUCTIONS = 20_000  # characters


class Round(models.Model):
    """A frozen sample of harvested tuples for annotators to judge.

    OPTIONS: fields that researchers set, grouped as on the form. The form, the JSON description, and its example are
    derived from these fields and their validators and help texts. Judging reads only the fields in JUDGING_COLUMNS
    (annotation.judging.models).

    spec: JSON description of the round with its cells, but without default values (annotation.rounds.serializers).
    relation_instructions: Markdown by relation id, frozen when the round opens. n_tasks: number of statements,
    including gold. source: origin of the judgments; pages and reports mark simulated judgments. completed_at: time at
    which all statements were found to be complete; None until then. archived_at: lists and choices hide archived rounds
    and their reports; only closed rounds are archived. takes_guests: True for the choice LINK. Reports read
    it, and servers of the last release read and write it instead of who_can_join. has_reservations: True from the first
    reservation on. Other rounds assign tasks without checking reservations.
    """

    class Status(models.TextChoices):
        DRAFT = "draft"
        OPEN = "open"
        PAUSED = "paused"
        CLOSED = "closed"

    class Source(models.TextChoices):
        PEOPLE = "people"
        SIMULATED = "simulated", "simulated, not people"
        IMPORTED = "imported"

    class ClosesWhen(models.TextChoices):
        MANUAL = "manual", "manually"
        COMPLETE = "complete", "when all statements are complete"
        DATE = "date", "on a date"
        NARROW = "narrow", "at a target interval width"

    ARCHIVABLE = {"status": "closed"}  # lookups of rows that can be archived

    class WhoCanJoin(models.TextChoices):
        ACCOUNT = "account", "People with an account: they open the join link and log in"
        LINK = "link", "Anybody with the link: they join with a name or code, without an account"
        INVITE = "invite", "Invited people: each personal invite link lets one person join"

    OPTIONS = {
        "Sample": ("seed", "include_sensitive", "judge", "cluster_size"),
        "Judgments": ("judgments_per_task", "third_only_if_split", "layout", "batch_size", "asks_wrong_part"),
        "References": ("reference_links", "imported_references"),
        "Gold statements": ("gold_share", "gold_reuse", "training_size"),
        "Instructions": ("instructions", "consent", "on_withdrawal", "check_questions"),
        "People": ("who_can_join", "max_per_annotator", "dominance_cap"),
        "Questionnaire": ("ask_language", "ask_country", "ask_age_group", "ask_expertise", "own_questions"),
        "Closing": ("closes_when", "closes_at", "closes_at_half_width"),
    }

    name = models.SlugField(
        max_length=100,
        help_text="Letters, digits, hyphens, and underscores. Visible to annotators: do not mention LMs or settings.",
    )
    seed = models.PositiveBigIntegerField(default=0, help_text="Seed of the sample. Equal seeds draw equal samples.")
    include_sensitive = models.BooleanField("include sensitive tuples", default=False)
    judge = models.SlugField(
        max_length=100,
        blank=True,
        help_text="Name of a judge run of this draft. Its labels (true, false, neither) define the strata.",
    )
    cluster_size = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(2), MaxValueValidator(100)],
        help_text="Maximum number of statements per cluster. A cluster contains tuples with the same subject (first "
        "entity), which are judged in succession. Leave empty for simple random sampling.",
    )
    judgments_per_task = models.PositiveSmallIntegerField(
        "judgments per statement", default=3, validators=[MinValueValidator(1), MaxValueValidator(99)]
    )
    third_only_if_split = models.BooleanField(
        "adaptive third judgment",
        default=False,
        help_text="Collect two judgments; request a third only if they disagree. Requires 3 judgments per statement.",
    )
    layout = models.CharField(
        max_length=4, choices=Layout, default=Layout.ONE, help_text="Default layout. Annotators can switch."
    )
    batch_size = models.PositiveSmallIntegerField(
        default=10,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text="Statements reserved for one annotator at a time.",
    )
    asks_wrong_part = models.BooleanField(
        "ask which part is wrong",
        default=False,
        db_default=False,
        help_text="After the answer False, annotators choose the wrong part: one of the entities, or the relation.",
    )
    reference_links = models.TextField(
        "reference links",
        blank=True,
        default="",
        db_default="",
        max_length=LONGEST_INSTRUCTIONS,
        help_text="Links under each statement, one per line: an optional name and a URL with {head}, {tail}, {entity}, "
        "{relation}, or {statement}. Example: Wikipedia https://en.wikipedia.org/w/index.php?search={head}+{tail}",
    )
    imported_references = models.BooleanField(
        "show imported references",
        default=False,
        db_default=False,
        help_text="Shows the references of imported tuples. Not available with gold, which has no imported references.",
    )
    gold_share = models.FloatField(
        "gold",
        default=0,
        validators=[MinValueValidator(0), MaxValueValidator(0.5)],
        help_text="Share of gold among the statements of an annotator. Gold looks like other statements and does not "
        "count in results.",
    )
    gold_reuse = models.BooleanField(
        "reuse gold",
        default=False,
        db_default=False,
        help_text="Shows each gold statement to every annotator, so that few gold statements are enough. Groups of "
        "annotators who compare their statements can then recognize gold.",
    )
    training_size = models.PositiveSmallIntegerField(
        "statements in training",
        default=0,
        validators=[MaxValueValidator(20)],
        help_text="Answered before the first batch. The correct answer and its reason follow each answer.",
    )
    instructions = models.TextField(
        blank=True,
        max_length=LONGEST_INSTRUCTIONS,
        help_text="Markdown. The explanation and examples of each relation are added. Edit them on the draft's page.",
    )
    consent = models.TextField(
        blank=True,
        max_length=LONGEST_INSTRUCTIONS,
        help_text="Text that annotators must accept before they join. The time and the text are recorded.",
    )
    on_withdrawal = models.CharField(
        "judgments after withdrawal",
        max_length=6,
        choices=OnWithdrawal,
        default=OnWithdrawal.KEEP,
        help_text="Shown with the consent. Annotators can withdraw on their own page.",
    )
    check_questions = models.TextField(
        "comprehension check",
        blank=True,
        max_length=LONGEST_INSTRUCTIONS,
        help_text="Questions about the instructions. Write a question on one line, then each choice on its own line: "
        "the correct choice after +, the others after -. Separate questions by a blank line. Annotators who fail twice "
        "cannot judge.",
    )
    ask_language = models.CharField("first language", max_length=8, choices=Asked, default=Asked.NO)
    ask_country = models.CharField("country", max_length=8, choices=Asked, default=Asked.NO)
    ask_age_group = models.CharField("age group", max_length=8, choices=Asked, default=Asked.NO)
    ask_expertise = models.CharField("expertise", max_length=8, choices=Asked, default=Asked.NO)
    own_questions = models.TextField(
        blank=True,
        max_length=LONGEST_INSTRUCTIONS,
        help_text="Write a question on one line, then each choice on its own line after -. A question without choices "
        "takes a short text. End required questions with *. Separate questions by a blank line. Do not ask for "
        "identifying information.",
    )
    who_can_join = models.CharField(
        max_length=7,
        choices=WhoCanJoin,
        default=WhoCanJoin.ACCOUNT,
        db_default=WhoCanJoin.ACCOUNT,
        help_text="Personal invites work for every choice. You can change the choice while the round is open.",
    )
    max_per_annotator = models.PositiveIntegerField(
        "maximum statements per annotator",
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(1_000_000_000)],
        help_text="Leave empty for no limit.",
    )
    dominance_cap = models.FloatField(
        "maximum share per annotator",
        null=True,
        blank=True,
        validators=[MinValueValidator(0.01), MaxValueValidator(1)],
        help_text="Share of all judgments of the round. Leave empty for no limit.",
    )
    closes_when = models.CharField(max_length=8, choices=ClosesWhen, default=ClosesWhen.MANUAL)
    closes_at = models.DateTimeField(
        "date", null=True, blank=True, help_text="Required for “on a date”. Uses the time zone of this installation."
    )
    closes_at_half_width = models.FloatField(
        "half-width",
        null=True,
        blank=True,
        validators=[MinValueValidator(0.01), MaxValueValidator(0.5)],
        help_text="Required for “at a target interval width”. Maximum half-width of the interval of each LM and "
        "setting, averaged over relations.",
    )

    takes_guests = models.BooleanField(default=False, db_default=False, editable=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="rounds")
    source = models.CharField(max_length=9, choices=Source, default=Source.PEOPLE)
    status = models.CharField(max_length=6, choices=Status, default=Status.DRAFT)
    relation_instructions = models.JSONField(default=dict, blank=True)
    spec = models.JSONField(default=dict, blank=True)
    n_tasks = models.PositiveIntegerField(default=0)
    n_gold = models.PositiveIntegerField(default=0)
    join_token = models.CharField(max_length=32, unique=True, default=new_join_token)
    created_by = person_or_null()
    created_at = models.DateTimeField(auto_now_add=True)
    opened_at = models.DateTimeField(null=True, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True, editable=False)
    has_reservations = models.BooleanField(default=False, db_default=False, editable=False)

    objects = RoundQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(fields=["project", "name"], name="round_project_name_unique"),
            models.CheckConstraint(
                condition=Q(status__in=["draft", "open", "paused", "closed"]), name="round_status_known"
            ),
            models.CheckConstraint(
                condition=Q(source__in=["people", "simulated", "imported"]), name="round_source_known"
            ),
            models.CheckConstraint(condition=Q(judgments_per_task__gte=1), name="round_judgments_per_task_positive"),
            models.CheckConstraint(condition=Q(layout__in=["one", "page"]), name="round_layout_known"),
            models.CheckConstraint(
                condition=Q(who_can_join__in=["account", "link", "invite"]), name="round_who_can_join_known"
            ),
            models.CheckConstraint(
                condition=Q(third_only_if_split=False) | Q(judgments_per_task=3), name="round_third_of_three"
            ),
            models.CheckConstraint(
                condition=Q(gold_share__gte=0, gold_share__lte=0.5), name="round_gold_share_in_range"
            ),
            models.CheckConstraint(
                condition=Q(max_per_annotator=None) | Q(max_per_annotator__gte=1), name="round_quota_positive"
            ),
            models.CheckConstraint(
                condition=Q(dominance_cap=None) | Q(dominance_cap__gt=0, dominance_cap__lte=1),
                name="round_dominance_cap_in_range",
            ),
            models.CheckConstraint(condition=Q(on_withdrawal__in=["keep", "delete"]), name="round_on_withdrawal_known"),
            models.CheckConstraint(
                condition=Q(closes_when__in=["manual", "complete", "narrow"], closes_at=None)
                | Q(closes_when="date", closes_at__isnull=False),
                name="round_closes_at_a_date",
            ),
            models.CheckConstraint(
                condition=Q(closes_when__in=["manual", "complete", "date"], closes_at_half_width=None)
                | Q(closes_when="narrow", closes_at_half_width__isnull=False),
                name="round_closes_at_a_half_width",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def from_db(cls, *args, **options) -> "Round":
        """Load a round. If a server of the last release changed takes_guests, set who_can_join accordingly."""
        round = super().from_db(*args, **options)
        takes_link = round.__dict__.get("who_can_join") == cls.WhoCanJoin.LINK
        if round.__dict__.get("takes_guests", takes_link) != takes_link:
            round.who_can_join = cls.WhoCanJoin.LINK if round.takes_guests else cls.WhoCanJoin.ACCOUNT
        return round

    def save(self, *args, **options) -> None:
        self.takes_guests = self.who_can_join == self.WhoCanJoin.LINK
        super().save(*args, **options)

    def get_absolute_url(self) -> str:
        return reverse("annotation:round", args=[self.path])

    @property
    def events(self) -> EventQuerySet:
        """History of the round, newest first."""
        events = Event.objects.filter(round_id=self.pk).exclude(kind="").defer("row_hashes")  # may have megabytes
        return events.select_related("by").order_by("-pk")

    @property
    def path(self) -> str:
        """Unambiguous name: project/name."""
        return f"{self.project.slug}/{self.name}"

    def clean(self) -> None:
        """Raise ValidationError for the first option that contradicts another option or has invalid questions."""
        if self.third_only_if_split and self.judgments_per_task not in (3, None):  # None: empty form field, default 3
            reason = (
                f"An adaptive third judgment requires 3 judgments per statement, not {self.judgments_per_task}. Set 3."
            )
            raise ValidationError({"third_only_if_split": reason})
        if (self.closes_when == self.ClosesWhen.DATE) != (self.closes_at is not None):
            reason = "A date and time is required if the round closes on a date. Otherwise, it must be empty."
            raise ValidationError({"closes_at": reason})
        if (self.closes_when == self.ClosesWhen.NARROW) != (self.closes_at_half_width is not None):
            reason = (
                "A half-width is required if the round closes at a target interval width. Otherwise, it must be empty."
            )
            raise ValidationError({"closes_at_half_width": reason})
        if self.closes_when == self.ClosesWhen.NARROW and self.cluster_size:
            reason = (
                "Clusters cannot be combined with closing at a target interval width, which assumes simple samples."
            )
            raise ValidationError({"cluster_size": reason})
        try:
            parse_reference_links(self.reference_links)
        except BadReferenceLinks as fault:
            raise ValidationError({"reference_links": str(fault)}) from None
        if self.imported_references and self.gold_share:
            reason = (
                "Annotators could recognize gold, which has no imported references. Use reference links, or no gold."
            )
            raise ValidationError({"imported_references": reason})
        for option, is_check in (("own_questions", False), ("check_questions", True)):
            try:
                parse_questions(getattr(self, option), option, is_check=is_check)
            except BadQuestions as fault:
                raise ValidationError({option: str(fault)}) from None

    @property
    def is_archived(self) -> bool:
        return self.archived_at is not None

    @property
    def quota(self) -> int | None:
        """Maximum number of statements per annotator, including gold; None for no limit.

        The maximum share refers to the guaranteed judgments, so it holds even if no adaptive third judgment is needed.
        """
        limits = [] if self.max_per_annotator is None else [self.max_per_annotator]
        if self.dominance_cap is not None:
            limits.append(max(1, int(self.dominance_cap * self.n_tasks * self.n_wanted_first + 1e-9)))
        return min(limits, default=None)

    @property
    def most_by_one(self) -> int:
        """Maximum number of statements that one annotator can judge, including gold."""
        return self.n_tasks if self.quota is None else min(self.n_tasks, self.quota)

    @property
    def gold_rate(self) -> float:
        """Expected share of gold among the statements of an annotator, constant throughout the round.

        If there is too little gold, the share is lower than `gold_share`. Otherwise, gold would run out early, and
        annotators could infer which statements are not gold.
        """
        if not self.n_gold:
            return 0.0
        return min(self.gold_share, self.n_gold / self.most_by_one) if self.gold_reuse else self.n_gold / self.n_tasks

    @property
    def n_wanted_first(self) -> int:
        """Number of judgments that a statement requires when the round opens."""
        return 2 if self.third_only_if_split else self.judgments_per_task

    def noisy_harvests(self) -> models.QuerySet[HarvestJob]:
        """Return the sampled harvests that are probably noise."""
        return HarvestJob.objects.probably_noise().filter(pk__in=self.strata.values("job")).order_by("pk")

    @property
    def has_references(self) -> bool:
        """True if references are shown under the statements (annotation.rounds.references)."""
        return self.imported_references or bool(self.reference_links.strip())

    @property
    def asks_who(self) -> bool:
        """True if annotators answer a questionnaire (annotation.questionnaire.questions.who_questions)."""
        built_in = any(getattr(self, option) != Asked.NO for option in BUILT_IN_QUESTIONS)
        return built_in or bool(self.own_questions.strip())

    @property
    def is_judged(self) -> bool:
        """True if any statement of the round, including gold, was judged or adjudicated."""
        # The order lets the database use an index instead of reading all judgments.
        judges = self.annotators.filter(judgments__isnull=False).order_by(
            "judgments__annotator", "judgments__judged_at"
        )
        return bool(judges.values("pk")[:1]) or self.tasks.filter(adjudications__isnull=False).exists()

    @property
    def is_open(self) -> bool:
        """True while judgments are accepted. False after the closing time, even before a worker closes the round."""
        return self.status == self.Status.OPEN and (self.closes_at is None or timezone.now() < self.closes_at)

    def check_open(self) -> None:
        """Raise RoundNotOpen unless judgments are accepted."""
        if not self.is_open:
            status = "over" if self.status == self.Status.OPEN else self.status
            raise RoundNotOpen(f"Round {self.name} is {status}. You can judge only while it is open.")

    @property
    def quorum(self) -> int:
        """Minimum number of agreeing judgments for a verdict."""
        return IMPORTED_QUORUM if self.source == self.Source.IMPORTED else 1

    @property
    def least_k(self) -> int:
        """Minimum value of n_wanted in estimates. It includes the adaptive third judgment.

        The value is 0 for imported rounds, in which n_wanted varies.
        """
        return 0 if self.source == self.Source.IMPORTED else self.judgments_per_task


# Model fields in the description of a round. Only the first field, the name, has no default.
OPTIONS = ("name", *(name for names in Round.OPTIONS.values() for name in names), "source")


class Snapshot(models.Model):
    """A cached count of a large round (annotation.monitoring.progress).

    took_s: duration of the count in seconds. counting_since: start of the count in progress, or None.
    """

    round = models.ForeignKey(Round, on_delete=models.CASCADE, related_name="snapshots")
    subject = models.CharField(max_length=30)
    content = models.JSONField()
    counted_at = models.DateTimeField()
    took_s = models.FloatField()
    counting_since = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["round", "subject"], name="snapshot_round_subject_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} of {self.round_id} at {self.counted_at:%Y-%m-%d %H:%M}"


# Samples


CellId = tuple[int, int | None, str]  # relation id, LM id, setting


def side_key(model: int | None, setting: str) -> str:
    """Return the query parameter for an LM id and a setting, for example "3.multi"."""
    return f"{model or ''}.{setting}"


class StratumQuerySet(models.QuerySet):
    def sampled(self):
        """Return strata with tuples, even if none was drawn, and strata with imported statements."""
        has_draws = models.Exists(Draw.objects.filter(stratum=models.OuterRef("pk")))
        return self.filter(Q(job__isnull=False, population__gt=0) | has_draws)


class Stratum(models.Model):
    """A part of a cell (relation x LM x setting) from which a simple random or clustered sample was drawn.

    With a job: `sample_size` tuples, drawn from the `population` tuples at ranks `rank_from` to `rank_to` (1-based,
    inclusive). cut: the sampled part of the harvest, for example "top:100"; empty for the entire harvest.
    Without a job: imported statements from an unknown population; language_model may be None and setting empty.
    judge_label: one of annotation.judges.allocation.JUDGE_STRATA if judge labels define the strata; ranks then lists
    the ranks of the stratum, which are not contiguous.
    """

    round = models.ForeignKey(Round, on_delete=models.CASCADE, related_name="strata")
    relation = models.ForeignKey(Relation, on_delete=models.PROTECT, related_name="strata")
    language_model = models.ForeignKey(
        LanguageModel, on_delete=models.PROTECT, null=True, blank=True, related_name="strata"
    )
    setting = models.CharField(max_length=30, blank=True)
    job = models.ForeignKey(HarvestJob, on_delete=models.PROTECT, null=True, blank=True, related_name="strata")
    cut = models.CharField(max_length=50, blank=True)
    rank_from = models.PositiveIntegerField(default=1)
    rank_to = models.PositiveIntegerField(null=True, blank=True)
    judge_label = models.CharField(max_length=5, blank=True)
    ranks = models.JSONField(null=True, blank=True)
    population = models.PositiveIntegerField(null=True, blank=True)
    sample_size = models.PositiveIntegerField()

    objects = StratumQuerySet.as_manager()

    class Meta:
        ordering = ["pk"]
        verbose_name_plural = "strata"
        constraints = [
            models.UniqueConstraint(
                fields=["round", "relation", "language_model", "setting", "rank_from"], name="stratum_cell_rank_unique"
            ),
            models.UniqueConstraint(
                fields=["round", "relation", "setting"], condition=Q(language_model=None), name="stratum_unnamed_unique"
            ),
            models.CheckConstraint(
                condition=Q(job=None) | Q(population__gte=F("sample_size"), rank_to__gte=F("rank_from")),
                name="stratum_sample_in_population",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.sample_size} of {self.population} from {self.job}"

    @property
    def cell(self) -> CellId:
        return self.relation_id, self.language_model_id, self.setting


def cell_names(strata: Iterable[Stratum]) -> dict[CellId, tuple[str, str, str]]:
    """Return (relation, LM, setting) names by cell, sorted by name.

    Each name is as short as possible, but unique among these strata. The names of the LM and setting are empty if
    imported judgments lack them.
    """
    strata = list(strata)
    relations = shortest_names(stratum.relation.path for stratum in strata)
    short = {str(model): short_name(model.name) for stratum in strata if (model := stratum.language_model)}
    models = shortest_names(short, short.__getitem__)
    names = {
        stratum.cell: (relations[stratum.relation.path], models.get(str(stratum.language_model), ""), stratum.setting)
        for stratum in strata
    }
    return dict(sorted(names.items(), key=itemgetter(1)))


class JudgmentTaskQuerySet(models.QuerySet):
    # Same condition as the partial index judgment_task_open. It has no parameters, so all databases can use the index.
    OPEN = Q(n_wanted__gt=F("n_judgments") + F("n_leased"))
    RESERVED = Q(n_wanted__gt=F("n_judgments") + F("n_leased"), reservation__isnull=False)  # of judgment_task_reserved
    # Same condition as the index judgment_task_contested: the labels are neither all True nor all False.
    DISAGREEMENT = Q(n_judgments__gt=F("n_true")) & Q(n_judgments__gt=F("n_false"))

    def with_open_slot(self):
        """Return tasks that need more judgments than are stored or leased."""
        return self.filter(self.OPEN)

    def available_to(self, annotator):
        """Return tasks with an open slot, except those that are reserved for other annotators."""
        tasks = self.with_open_slot()
        if not annotator.round.has_reservations:
            return tasks
        return tasks.filter(Q(reservation=None) | Q(reservation__in=annotator.reservations.values("pk")))

    def with_disagreement(self):
        return self.filter(self.DISAGREEMENT, n_judgments__gt=F("n_unjudgeable"))

    def gold(self):
        return self.filter(is_gold=True)

    def without_gold(self):
        return self.filter(is_gold=False)

    def with_slots(self):
        """Return all tasks except reused gold."""
        return self.filter(n_wanted__gt=0)

    def complete(self):
        return self.exclude(verdict="")

    def drawn_for(self, model: int | None, setting: str):
        """Return the tasks drawn for cells with this LM id and setting."""
        draws = Draw.objects.filter(task=models.OuterRef("pk"))
        return self.filter(models.Exists(draws.filter(stratum__language_model=model, stratum__setting=setting)))


class JudgmentTask(models.Model):
    """One statement of a round. If several cells draw the same tuple, they share its task.

    statement: frozen text. entities: surface forms by slot. spans: [start, end) of each entity in the statement, in
    reading order. position: index in the round's random order, from 0. n_wanted: number of required judgments (k).
    Gold is assigned and counted like other tasks, but has no verdict, and its judgments do not count (Judgment). If the
    round reuses gold, n_wanted is 0: every annotator may judge the gold, and its counters stay 0.
    n_leased: number of assigned judgments. verdict: empty until `n_wanted` judgments are counted. additions: further
    keys of the statement as sent to annotators (annotation.rounds.references); None in most rounds. reservation: the
    annotators that the task is reserved for; None in most rounds, and never set for reused gold.
    """

    round = models.ForeignKey(Round, on_delete=models.CASCADE, related_name="tasks")
    knowledge_tuple = models.ForeignKey(KnowledgeTuple, on_delete=models.PROTECT, related_name="judgment_tasks")
    statement = models.TextField()
    entities = models.JSONField()
    spans = models.JSONField()
    is_gold = models.BooleanField(default=False)
    gold_label = models.CharField(max_length=11, blank=True)
    position = models.PositiveIntegerField()
    n_wanted = models.PositiveSmallIntegerField()
    n_leased = models.PositiveSmallIntegerField(default=0)
    n_judgments = models.PositiveSmallIntegerField(default=0)
    n_true = models.PositiveSmallIntegerField(default=0)
    n_false = models.PositiveSmallIntegerField(default=0)
    n_unjudgeable = models.PositiveSmallIntegerField(default=0)
    verdict = models.CharField(
        max_length=9, blank=True, choices=[(verdict.value, verdict.value.capitalize()) for verdict in Verdict]
    )
    additions = models.JSONField(null=True, blank=True)
    # The partial index judgment_task_reserved excludes NULL, so rounds without reservations do not write to it.
    reservation = models.ForeignKey(
        "annotation.Reservation", on_delete=models.SET_NULL, null=True, blank=True, related_name="tasks", db_index=False
    )

    objects = JudgmentTaskQuerySet.as_manager()

    class Meta:
        ordering = ["round", "position"]
        constraints = [
            models.UniqueConstraint(fields=["round", "position"], name="judgment_task_position_unique"),
            models.UniqueConstraint(
                fields=["round", "knowledge_tuple"], condition=Q(is_gold=False), name="judgment_task_tuple_unique"
            ),
            # Exactly k judgments: judgments and leases together never exceed the required number.
            models.CheckConstraint(
                condition=Q(n_wanted__gte=F("n_judgments") + F("n_leased")), name="judgment_task_never_more_than_wanted"
            ),
            models.CheckConstraint(
                condition=Q(n_judgments=F("n_true") + F("n_false") + F("n_unjudgeable")),
                name="judgment_task_counts_add_up",
            ),
            models.CheckConstraint(
                condition=Q(verdict="") | Q(n_judgments=F("n_wanted")), name="judgment_task_verdict_when_complete"
            ),
            models.CheckConstraint(
                condition=Q(verdict__in=["", "accepted", "rejected", "undecided"]), name="judgment_task_verdict_known"
            ),
            models.CheckConstraint(
                condition=Q(is_gold=True, gold_label__in=["true", "false"]) | Q(is_gold=False, gold_label=""),
                name="judgment_task_gold_has_label",
            ),
        ]
        indexes = [
            models.Index(fields=["round", "position"], condition=JudgmentTaskQuerySet.OPEN, name="judgment_task_open"),
            models.Index(fields=["round", "position"], condition=Q(is_gold=True), name="judgment_task_gold"),
            models.Index(
                fields=["reservation", "position"],
                condition=JudgmentTaskQuerySet.RESERVED,
                name="judgment_task_reserved",
            ),
            models.Index(
                fields=["round", "n_true", "n_false", "n_unjudgeable", "position"],
                condition=JudgmentTaskQuerySet.DISAGREEMENT,
                name="judgment_task_contested",
            ),
        ]

    def __str__(self) -> str:
        return self.statement

    def get_absolute_url(self) -> str:
        return reverse("annotation:statement", args=[self.round.path, self.pk])

    @property
    def parts(self) -> list[tuple[str, bool]]:
        return statement_parts(self.statement, self.spans)

    @property
    def wrong_parts(self) -> list[str]:
        """Valid values of Judgment.wrong_part for the label False; [""] if the round does not ask."""
        slots = (self.additions or {}).get("slots")
        return wrong_parts(len(slots)) if slots else [""]


class Draw(models.Model):
    """Membership of a task in a stratum's sample.

    The rate of a cell uses only draws for that cell. Gold tasks have no draws. harvested_tuple, inclusion_probability:
    None for judgments imported without a harvest. cluster: number, unique in the round, of the cluster that the task
    was drawn with; None for simple random samples.
    """

    stratum = models.ForeignKey(Stratum, on_delete=models.CASCADE, related_name="draws")
    task = models.ForeignKey(JudgmentTask, on_delete=models.CASCADE, related_name="draws")
    harvested_tuple = models.ForeignKey(
        HarvestedTuple, on_delete=models.PROTECT, null=True, blank=True, related_name="draws"
    )
    inclusion_probability = models.FloatField(null=True, blank=True)
    cluster = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["stratum", "task"], name="draw_stratum_task_unique"),
            models.CheckConstraint(
                condition=Q(inclusion_probability__gt=0, inclusion_probability__lte=1),
                name="draw_inclusion_probability_in_range",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.task_id} from stratum {self.stratum_id}"
