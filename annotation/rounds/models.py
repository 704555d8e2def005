"""Rounds with their options and samples: strata of cells, draws, and the tasks that people judge."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.urls import reverse
from django.utils import timezone

from annotation.judging.verdicts import IMPORTED_QUORUM, Verdict
from annotation.questionnaire.questions import Asked, BadQuestions, OnWithdrawal, parse_questions
from annotation.rounds.instructions import statement_parts
from kgharvest.access import visible
from kgharvest.accounts.models import person_or_null
from kgharvest.errors import DomainError
from kgharvest.events.models import Event, EventQuerySet
from kgharvest.models import HarvestedTuple, HarvestJob, KnowledgeTuple, LanguageModel, Project, Relation
from kgharvest.names import shortest_names


def new_join_token() -> str:
    return secrets.token_urlsafe(16)


class Layout(models.TextChoices):
    ONE = "one", "One at a time"
    PAGE = "page", "Page of statements"


class RoundNotOpen(DomainError):
    """Judging in a round that is not open."""


class RoundQuerySet(models.QuerySet):
    def visible_to(self, user):
        """Return the rounds of the user's projects; all of them for a superuser and for the operator."""
        return visible(self, user)

    def at(self, path: str):
        """Return the round whose path, project/name, this is."""
        slug, _, name = path.rpartition("/")
        return self.filter(project__slug=slug, name=name)


DEFAULT_SAMPLE_SIZE = 20  # statements per harvest, on the form of a new round
LONGEST_INSTRUCTIONS = 20_000  # characters


class Round(models.Model):
    """A frozen sample of harvested tuples put before people.

    OPTIONS names the fields that researchers choose, in the groups of the form: form, JSON description and its
    example are made from these fields, their validators and their help texts. What judging reads of a round for each
    answer is in JUDGING_COLUMNS (annotation.judging.models).

    spec: its description as JSON, without what is as usual (annotation.rounds.serializers); it has the cells too.
    relation_instructions: Markdown by the relation's id, frozen when the round opens. n_tasks: how many statements it
    has, gold included. source: where the judgments come from; simulated ones are named so wherever they show.
    completed_at: when every statement was seen to have its judgments; None while some are missing.
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
        MANUAL = "manual", "somebody closes it"
        COMPLETE = "complete", "every statement has its judgments"
        DATE = "date", "a date has come"
        NARROW = "narrow", "accuracies are known well enough"

    OPTIONS = {
        "Sample": ("seed", "include_sensitive", "judge"),
        "Judgments": ("judgments_per_task", "third_only_if_split", "layout", "batch_size"),
        "Known answers": ("gold_share", "training_size"),
        "Instructions": ("instructions", "consent", "on_withdrawal", "check_questions"),
        "People": ("takes_guests", "max_per_annotator", "dominance_cap"),
        "Who they are": ("ask_language", "ask_country", "ask_age_group", "ask_expertise", "own_questions"),
        "Closing": ("closes_when", "closes_at", "closes_at_half_width"),
    }

    name = models.SlugField(
        max_length=100,
        help_text="Letters, digits, - and _. Annotators see it: name no LM and no setting.",
    )
    seed = models.PositiveBigIntegerField(default=0, help_text="The same seed draws the same sample.")
    include_sensitive = models.BooleanField("draw tuples with sensitive words too", default=False)
    judge = models.SlugField(
        max_length=100,
        blank=True,
        help_text="Name of a judge run of this draft: what it labels true, false and neither are the strata then.",
    )
    judgments_per_task = models.PositiveSmallIntegerField(
        "judgments per statement", default=3, validators=[MinValueValidator(1), MaxValueValidator(99)]
    )
    third_only_if_split = models.BooleanField(
        "ask two people first, a third only when they differ",
        default=False,
        help_text="The same verdicts from fewer judgments; with three per statement.",
    )
    layout = models.CharField(max_length=4, choices=Layout, default=Layout.ONE, help_text="Annotators may switch.")
    batch_size = models.PositiveSmallIntegerField(
        default=10,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text="Statements reserved for one annotator at a time.",
    )
    gold_share = models.FloatField(
        "gold",
        default=0,
        validators=[MinValueValidator(0), MaxValueValidator(0.5)],
        help_text="Of what an annotator sees: statements with known answers, which look like the others and count "
        "nowhere.",
    )
    training_size = models.PositiveSmallIntegerField(
        "statements in training",
        default=0,
        validators=[MaxValueValidator(20)],
        help_text="Answered before the first batch, each with the reason for the right answer.",
    )
    instructions = models.TextField(
        blank=True,
        max_length=LONGEST_INSTRUCTIONS,
        help_text="Markdown. What a relation means and examples of it follow by themselves; on the page of the draft "
        "you can word that, too.",
    )
    consent = models.TextField(
        blank=True,
        max_length=LONGEST_INSTRUCTIONS,
        help_text="What annotators must agree to before they join; the time and the text are recorded.",
    )
    on_withdrawal = models.CharField(
        "judgments of who withdraws",
        max_length=6,
        choices=OnWithdrawal,
        default=OnWithdrawal.KEEP,
        help_text="People read it beside the consent, and may withdraw on their own page.",
    )
    check_questions = models.TextField(
        "comprehension check",
        blank=True,
        max_length=LONGEST_INSTRUCTIONS,
        help_text="Questions about the instructions: one on a line, then its choices, the right one after +, others "
        "after -; a blank line before the next. Who does not answer all rightly in two tries cannot judge.",
    )
    ask_language = models.CharField("first language", max_length=8, choices=Asked, default=Asked.NO)
    ask_country = models.CharField("country", max_length=8, choices=Asked, default=Asked.NO)
    ask_age_group = models.CharField("age group", max_length=8, choices=Asked, default=Asked.NO)
    ask_expertise = models.CharField("expertise", max_length=8, choices=Asked, default=Asked.NO)
    own_questions = models.TextField(
        blank=True,
        max_length=LONGEST_INSTRUCTIONS,
        help_text="One on a line, then its choices, each on a line after -; without choices it takes a short text. "
        "With * at its end it must be answered. A blank line before the next. Ask nothing that tells who somebody is.",
    )
    takes_guests = models.BooleanField(
        "the join link works without an account",
        default=False,
        help_text="Whoever has it gives a name or code. Links for one person each are made once the round is open.",
    )
    max_per_annotator = models.PositiveIntegerField(
        "statements that one annotator may judge",
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(1_000_000_000)],
        help_text="Empty is no limit.",
    )
    dominance_cap = models.FloatField(
        "largest share of one annotator",
        null=True,
        blank=True,
        validators=[MinValueValidator(0.01), MaxValueValidator(1)],
        help_text="Of all judgments of the round. Empty is no limit.",
    )
    closes_when = models.CharField(max_length=8, choices=ClosesWhen, default=ClosesWhen.MANUAL)
    closes_at = models.DateTimeField(
        "date", null=True, blank=True, help_text="Goes with “a date has come”; in the zone of this installation."
    )
    closes_at_half_width = models.FloatField(
        "half-width",
        null=True,
        blank=True,
        validators=[MinValueValidator(0.01), MaxValueValidator(0.5)],
        help_text="Goes with “accuracies are known well enough”: of the accuracy of each LM and setting, averaged over "
        "its relations, by the interval that holds at every look.",
    )

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

    def get_absolute_url(self) -> str:
        return reverse("annotation:round", args=[self.path])

    @property
    def events(self) -> EventQuerySet:
        """History of the round, newest event first."""
        return Event.objects.history(self.pk)

    @property
    def path(self) -> str:
        """The name that is never ambiguous: project/name."""
        return f"{self.project.slug}/{self.name}"

    def clean(self) -> None:
        """Refuse options that do not go together. The form shows it beside the field, BadRoundSpec after its key."""
        if self.third_only_if_split and self.judgments_per_task not in (3, None):  # a form may leave it empty: 3
            reason = (
                f"A third person is asked only of three judgments per statement, not {self.judgments_per_task}; give 3."
            )
            raise ValidationError({"third_only_if_split": reason})
        if (self.closes_when == self.ClosesWhen.DATE) != (self.closes_at is not None):
            reason = "Give a date and time if the round closes at a date, and only then."
            raise ValidationError({"closes_at": reason})
        if (self.closes_when == self.ClosesWhen.NARROW) != (self.closes_at_half_width is not None):
            reason = "Give a half-width if the round closes once accuracies are known well enough, and only then."
            raise ValidationError({"closes_at_half_width": reason})
        for option, is_check in (("own_questions", False), ("check_questions", True)):
            try:
                parse_questions(getattr(self, option), option, is_check=is_check)
            except BadQuestions as fault:
                raise ValidationError({option: str(fault)}) from None

    @property
    def quota(self) -> int | None:
        """How many statements one annotator may judge, by their number or their share of all judgments; None: all.

        The share is that of the judgments that are sure to come, so that it is not exceeded in the end. Gold is among
        what they judge and among what there is to judge.
        """
        n_sure = 2 if self.third_only_if_split else self.judgments_per_task
        limits = [] if self.max_per_annotator is None else [self.max_per_annotator]
        if self.dominance_cap is not None:
            limits.append(max(1, int(self.dominance_cap * self.n_tasks * n_sure + 1e-9)))
        return min(limits, default=None)

    @property
    def most_by_one(self) -> int:
        """How many statements one annotator may judge, gold included."""
        return self.n_tasks if self.quota is None else min(self.n_tasks, self.quota)

    @property
    def gold_rate(self) -> float:
        """The share of gold among what an annotator is handed out, the same from the first statement to the last.

        `gold_share`, or less where there is less gold: used up before the end, it would tell that no more comes.
        """
        return min(self.gold_share, self.n_gold / self.most_by_one) if self.n_gold else 0.0

    @property
    def is_open(self) -> bool:
        """Whether judging goes on: a round is over at its closing time, even before a worker has closed it."""
        return self.status == self.Status.OPEN and (self.closes_at is None or timezone.now() < self.closes_at)

    def check_open(self) -> None:
        """Raise RoundNotOpen unless judging goes on."""
        if not self.is_open:
            status = "over" if self.status == self.Status.OPEN else self.status
            raise RoundNotOpen(f"The round {self.name} is {status}; judgments are taken only while it is open.")

    @property
    def quorum(self) -> int:
        """How many judgments that agree a verdict needs at least."""
        return IMPORTED_QUORUM if self.source == self.Source.IMPORTED else 1

    @property
    def least_k(self) -> int:
        """Return how many judgments decide a task at least, though two that agree may; imported ones have their own."""
        return 0 if self.source == self.Source.IMPORTED else self.judgments_per_task

    @property
    def is_simulated(self) -> bool:
        return self.source == self.Source.SIMULATED


# What a description of a round may say of these fields, the name first and without a default.
OPTIONS = ("name", *(name for names in Round.OPTIONS.values() for name in names), "source")


class Snapshot(models.Model):
    """The last count of something in a round that is too large to count for each look (annotation.monitoring.progress).

    took_s: how long counting took. counting_since: when somebody began the next one, None while nobody does.
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


CellId = tuple[int, int | None, str]  # ids of relation and LM, and the setting


class StratumQuerySet(models.QuerySet):
    def sampled(self):
        """Return the strata that hold tuples, or statements: one without a draw is a part of its cell all the same."""
        has_draws = models.Exists(Draw.objects.filter(stratum=models.OuterRef("pk")))
        return self.filter(Q(job__isnull=False, population__gt=0) | has_draws)


class Stratum(models.Model):
    """A part of a cell (relation x LM x setting) from which a simple random sample was drawn.

    With a job: `sample_size` of the `population` tuples of rank `rank_from` .. `rank_to`, 1-based and inclusive. cut:
    which part of the harvest this is, e.g. "top:100"; empty for all of it. Without a job: statements that came with
    imported judgments, from a population nobody knows; language_model None and setting empty where they name none.
    judge_label: where strata are what a judge labelled alike, one of annotation.judges.allocation.JUDGE_STRATA; ranks:
    then those of its tuples, which lie among others'.
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
    """Return what to call the relation, LM and setting of each cell, in the order of these names.

    As short as tells the relations and LMs of these strata apart; empty where imported judgments name none.
    """
    strata = list(strata)
    relations = shortest_names(stratum.relation.path for stratum in strata)
    short = {str(model): model.short_name for stratum in strata if (model := stratum.language_model)}
    models = shortest_names(short, short.__getitem__)
    names = {
        stratum.cell: (relations[stratum.relation.path], models.get(str(stratum.language_model), ""), stratum.setting)
        for stratum in strata
    }
    return dict(sorted(names.items(), key=lambda cell: cell[1]))


class JudgmentTaskQuerySet(models.QuerySet):
    # The partial index judgment_task_open has the same condition, without parameters, so that every database sees it.
    OPEN = Q(n_wanted__gt=F("n_judgments") + F("n_leased"))
    # Likewise judgment_task_contested: neither all True nor all False.
    DISAGREEMENT = Q(n_judgments__gt=F("n_true")) & Q(n_judgments__gt=F("n_false"))

    def with_open_slot(self):
        """Return tasks that want more judgments than they have, those in somebody's hands included."""
        return self.filter(self.OPEN)

    def with_disagreement(self):
        return self.filter(self.DISAGREEMENT, n_judgments__gt=F("n_unjudgeable"))

    def gold(self):
        return self.filter(is_gold=True)

    def without_gold(self):
        return self.filter(is_gold=False)

    def complete(self):
        return self.exclude(verdict="")

    def drawn_for(self, model: int | None, setting: str):
        """Return the tasks that a cell of this LM, by its id, and setting drew."""
        draws = Draw.objects.filter(task=models.OuterRef("pk"))
        return self.filter(models.Exists(draws.filter(stratum__language_model=model, stratum__setting=setting)))


class JudgmentTask(models.Model):
    """One statement of a round, judged once whichever cells drew its tuple.

    statement: frozen text; entities: their surface, by slot; spans: [start, end) of each entity in the statement, in
    reading order. position: place in the round's random order, from 0. n_wanted: k of this task; 0 for gold, which
    everybody may judge and which counts nothing: its counters stay 0 and its judgments are not counted ones.
    n_leased: judgments that somebody is assigned. verdict: empty until `n_wanted` judgments are counted.
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

    objects = JudgmentTaskQuerySet.as_manager()

    class Meta:
        ordering = ["round", "position"]
        constraints = [
            models.UniqueConstraint(fields=["round", "position"], name="judgment_task_position_unique"),
            models.UniqueConstraint(
                fields=["round", "knowledge_tuple"], condition=Q(is_gold=False), name="judgment_task_tuple_unique"
            ),
            # Exactly k: with what is in people's hands, never more judgments than wanted.
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
            models.CheckConstraint(condition=Q(is_gold=False) | Q(n_wanted=0), name="judgment_task_gold_wants_none"),
        ]
        indexes = [
            models.Index(fields=["round", "position"], condition=JudgmentTaskQuerySet.OPEN, name="judgment_task_open"),
            models.Index(fields=["round", "position"], condition=Q(is_gold=True), name="judgment_task_gold"),
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


class Draw(models.Model):
    """That a stratum's sample contains a task. A cell's rate rests on its own draws only; gold has none.

    harvested_tuple, inclusion_probability: None where the judgments were imported without a harvest.
    """

    stratum = models.ForeignKey(Stratum, on_delete=models.CASCADE, related_name="draws")
    task = models.ForeignKey(JudgmentTask, on_delete=models.CASCADE, related_name="draws")
    harvested_tuple = models.ForeignKey(
        HarvestedTuple, on_delete=models.PROTECT, null=True, blank=True, related_name="draws"
    )
    inclusion_probability = models.FloatField(null=True, blank=True)

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
