"""The sample of a round: strata of cells, what was drawn of them, and the tasks that people judge."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import models
from django.db.models import F, Q
from django.urls import reverse

from annotation.judging.verdicts import Verdict
from annotation.rounds.instructions import statement_parts
from annotation.rounds.models import Round
from kgharvest.models import HarvestedTuple, HarvestJob, KnowledgeTuple, LanguageModel, Relation
from kgharvest.names import shortest_names

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
        """Return tasks whose judgments so far are not all alike."""
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
        """The statement in stretches of text, each with whether it is an entity."""
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
