"""Pages of score evaluations: how well scores separate facts from false tuples (Figures 4 and 5 of the paper)."""

from collections.abc import Iterator

from django import forms
from django.db.models import F
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from annotation.judges.models import JudgeRun
from evaluation.models import ScoreEvaluation
from evaluation.rendering.figures import precision_recall
from evaluation.rendering.figures.drawing import FIGURE_FORMATS, LIGHT, PAPER_SCALE, THEMES, paper_box
from evaluation.rendering.figures.drawing import render as rendered
from evaluation.reports.views import page_drawing
from evaluation.scores.score_jobs import (
    MORE_SCORES,
    STORED_SETTINGS,
    TRAIN_HELP,
    ScoreRequest,
    queue_score_job,
    score_request,
    scorer_names,
)
from evaluation.scores.tables import relation_scores_table, replaced_table, scorer_table
from kgharvest.access import Action, allowed_actions, researcher_required, visible_or_404, worker_required
from kgharvest.accounts.forms import ProjectField, chosen_project, offer_projects
from kgharvest.bulk.file_reading import upload_limit
from kgharvest.engine.settings import PROMPT_SETTINGS, WITHOUT_LEARNING
from kgharvest.harvests.forms import PlacementForm
from kgharvest.jobs import ledger, workers
from kgharvest.jobs.queues import HARVEST
from kgharvest.models import Job, LanguageModel
from kgharvest.pages.lists import ListPage
from kgharvest.pages.number_format import share
from kgharvest.pages.refusals import refusal_as_message, refusal_in_form
from kgharvest.tables.downloads import download
from kgharvest.tables.formats import FORMATS, NDJSON, json_text, to_json

# Columns of the list, extracted by the database, because payloads and documents are too large to load.
LISTED = {
    "facts": "payload__facts",
    "scorers": "payload__scorers",
    "settings": "payload__settings",
    "harvests": "payload__harvests",
    "more": "payload__more",
    "n_relations": "document__n_relations",
    "n_facts": "document__n_positive",
}
SHOWN = 1.4  # scale on pages relative to print


class ScoreList(ListPage):
    template_name = "evaluation/scores/score_list.html"

    def rows(self):
        evaluations = ScoreEvaluation.objects.visible_to(self.request.user)
        evaluations = evaluations.select_related("language_model", "created_by").defer("document", "payload", "samples")
        return evaluations.annotate(**{name: F(path) for name, path in LISTED.items()})

    def context(self, page):
        for evaluation in page:
            # Payloads of older versions do not name the scorers.
            evaluation.scorers = evaluation.scorers or scorer_names(
                evaluation.settings or (), evaluation.harvests or (), evaluation.more or ()
            )
        return {"has_lms": LanguageModel.objects.visible_to(self.request.user).loadable().exists()}


class ScoreForm(PlacementForm):
    model = forms.ModelChoiceField(LanguageModel.objects.loadable(), label="LM", empty_label=None)
    settings = forms.MultipleChoiceField(
        label="Newly created prompts",
        choices=[(setting, setting) for setting in PROMPT_SETTINGS],
        initial=WITHOUT_LEARNING,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Created from the seed tuples, which are excluded from the facts. lpaqa, autoprompt, and soft are "
        "learned, which can take minutes per relation and requires an LM with a mask token.",
    )
    harvested = forms.MultipleChoiceField(
        label="Prompts of finished harvests",
        choices=[(setting, setting) for setting in STORED_SETTINGS],
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Prompts and weights of the newest harvest. Only relations with such a harvest are scored.",
    )
    facts = forms.FileField(
        label="Custom facts",
        required=False,
        validators=[upload_limit("evaluate it with the command evaluate_scores --facts")],
        help_text='JSONL, one {"relation": "set/name", "entities": ["...", "..."]} per line. Default: the facts that '
        "the embedded LMs were trained on.",
    )
    train = forms.FileField(
        label="Training facts",
        required=False,
        validators=[upload_limit("evaluate it with the command evaluate_scores --train")],
        help_text=TRAIN_HELP,
    )

    more = forms.MultipleChoiceField(
        label="Baseline scores",
        choices=list(MORE_SCORES.items()),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Baselines show how much of a score reflects only the familiarity of the entities.",
    )
    systems = forms.FileField(
        label="External scores",
        required=False,
        validators=[upload_limit("evaluate it with the command evaluate_scores --scores")],
        help_text="Scores of another system, for example COMET, as JSONL, CSV, or TSV with relation, entities (or head "
        "and tail), score, and optionally system. You can download the tuples to score from the page of an evaluation.",
    )
    judge_runs = forms.ModelMultipleChoiceField(
        JudgeRun.objects.none(),
        label="LM judges",
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Successful judge runs. Their scores express the confidence that a tuple is true.",
    )

    project = ProjectField()

    def offer_lms_and_judge_runs(self, user) -> None:
        """Offer the LMs and judge runs visible to the user. If there are no judge runs, remove their field."""
        self.fields["model"].queryset = LanguageModel.objects.visible_to(user).loadable()
        runs = JudgeRun.objects.visible_to(user).filter(status=Job.Status.SUCCEEDED).select_related("round")
        self.fields["judge_runs"].queryset = runs.order_by("-pk")
        self.fields["judge_runs"].label_from_instance = lambda run: f"{run} in {run.round.name}"
        if not runs.exists():
            del self.fields["judge_runs"]

    def request(self, by) -> ScoreRequest:
        """Return the request. Raises ImportRefused for invalid facts or scores."""
        cleaned = self.cleaned_data
        options = {name: cleaned[name] for name in ("facts", "systems", "train", "more")} | self.placement()
        judge_runs = tuple(cleaned.get("judge_runs", ()))
        choices = (cleaned["model"], cleaned["settings"], cleaned["harvested"])
        return score_request(*choices, judge_runs=judge_runs, by=by, **options)


@worker_required
def score_new(request: HttpRequest) -> HttpResponse:
    form = ScoreForm(request.POST or None, request.FILES or None)
    offer_projects(form, request)
    form.offer_lms_and_judge_runs(request.user)
    if form.is_valid():
        with refusal_in_form(form):
            return redirect(queue_score_job(form.request(request.user), request.user, chosen_project(form, request)))
    context = {"form": form, "lacks_worker": workers.lacking(timezone.now(), {HARVEST})}
    return render(request, "evaluation/scores/score_new.html", context)


@researcher_required
@require_POST
def score_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    evaluations = ScoreEvaluation.objects.select_related("project")
    evaluation = visible_or_404(request.user, evaluations, Action.WORK, pk=pk)
    with refusal_as_message(request):
        ledger.cancel(evaluation, request.user)
    return redirect(evaluation)


@researcher_required
@require_GET
def scores(request: HttpRequest, pk: int) -> HttpResponse:
    evaluations = ScoreEvaluation.objects.select_related("language_model", "created_by", "project")
    evaluation = visible_or_404(request.user, evaluations, pk=pk)
    lacks_worker = workers.lacking_for(evaluation, timezone.now())
    context = {"evaluation": evaluation, "document": evaluation.document, "lacks_worker": lacks_worker}
    context["may"] = allowed_actions(request.user, evaluation.project)
    if evaluation.document:
        drawing = precision_recall.draw(evaluation.document)
        width, height = (round(SHOWN * PAPER_SCALE * size) for size in paper_box(drawing, evaluation.document)[:2])
        scorers = evaluation.document["scorers"]
        precisions = "; ".join(f"{scorer['scorer']} {share(scorer['average_precision'])}" for scorer in scorers)
        tables = (build(evaluation.document) for build in (scorer_table, replaced_table, relation_scores_table))
        context |= {
            "tables": list(tables),
            "alt_text": f"Precision by recall, one line per scorer. Average precision: {precisions}.",
            "series": precision_recall.names_of(evaluation.document),
            "has_samples": bool(evaluation.samples),
            "width": width,
            "height": height,
        }
    return render(request, "evaluation/scores/scores.html", context)


@researcher_required
@require_GET
def score_file(request: HttpRequest, pk: int, file_format: str) -> HttpResponse:
    evaluation = visible_or_404(request.user, ScoreEvaluation.objects.exclude(document={}), pk=pk)
    if file_format == "svg" and "width" in request.GET:
        return page_drawing(request, precision_recall.draw, evaluation.document, "Precision and recall")
    return score_download(evaluation, file_format, request.GET.get("theme"))


def sample_lines(evaluation: ScoreEvaluation) -> Iterator[str]:
    """Yield each fact and false tuple as a JSON line. "score" comes from the first scorer with a score.

    Scorers are in the order of the document, because PostgreSQL reorders JSON keys.
    """
    names = [scorer["scorer"] for scorer in evaluation.document["scorers"]]
    for sample in evaluation.samples:
        scores = {name: sample["scores"][name] for name in names}
        score = next((value for value in scores.values() if value is not None), None)
        row = {"relation": sample["relation"], "entities": sample["entities"], "is_fact": sample["replaced"] is None}
        row |= {"replaced": sample["replaced"], "score": score, "scores": scores}
        yield to_json(row) + "\n"


def score_file_content(evaluation: ScoreEvaluation, file_format: str, theme: str | None = None) -> str | bytes | None:
    """Return the figure as SVG or PDF, the document as JSON, or the tuples as JSON lines; None for other formats.

    theme: theme of an inline image.
    """
    if file_format == "json":
        return json_text(evaluation.document)
    if file_format == "jsonl" and evaluation.samples:
        return "".join(sample_lines(evaluation))
    if file_format not in FIGURE_FORMATS:
        return None
    drawing = precision_recall.draw(evaluation.document)
    return rendered(drawing, evaluation.document, file_format, THEMES.get(theme or "", LIGHT))


def score_download(evaluation: ScoreEvaluation, file_format: str, theme: str | None = None) -> HttpResponse:
    """Return a file of the evaluation (`score_file_content`). Raises Http404.

    theme: theme of an inline image; None for a download.
    """
    content = score_file_content(evaluation, file_format, theme)
    if content is None:
        raise Http404("Unknown format. Use json, svg, pdf, or, if the tuples are stored, jsonl.")
    if theme is not None:
        return HttpResponse(content, content_type=FORMATS[file_format].content_type)
    return download(content, f"scores-{evaluation.pk}.{file_format}", NDJSON if file_format == "jsonl" else "")
