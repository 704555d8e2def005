"""How well scores tell facts from false tuples: the paper's Figs 4 and 5."""

from __future__ import annotations

import json

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from evaluation.models import ScoreEvaluation
from evaluation.rendering.figures import precision_recall
from evaluation.rendering.figures.canvas import LIGHT, THEMES
from evaluation.rendering.figures.canvas import render as draw
from evaluation.reports.views import CONTENT_TYPES, as_download
from evaluation.scores.forms import ScoreForm
from evaluation.scores.score_jobs import queue_score_job
from evaluation.scores.tables import relation_scores_table, replaced_table, scorer_table
from kgharvest.access import researcher_required
from kgharvest.bulk.pagination import page_of
from kgharvest.errors import DomainError, ImportRefused
from kgharvest.jobs import ledger
from kgharvest.models import LanguageModel
from kgharvest.pages.number_format import share

SHOWN = 1.4  # times its size in print, where the page is wide enough


@researcher_required
@require_GET
def score_list(request: HttpRequest) -> HttpResponse:
    evaluations = ScoreEvaluation.objects.select_related("language_model").defer("document", "payload")
    context = {"page_obj": page_of(request, evaluations), "has_lms": LanguageModel.objects.exists()}
    return render(request, "evaluation/scores/score_list.html", context)


@researcher_required
def score_new(request: HttpRequest) -> HttpResponse:
    form = ScoreForm(request.POST or None, request.FILES or None)
    refusal = None
    if form.is_valid():
        try:
            return redirect(queue_score_job(form.request(), by=request.user))
        except ImportRefused as error:
            refusal = error
        except DomainError as error:
            form.add_error(None, str(error))
    lacks_worker = not ledger.has_worker(timezone.now())
    return render(
        request, "evaluation/scores/score_new.html", {"form": form, "refusal": refusal, "lacks_worker": lacks_worker}
    )


@researcher_required
@require_POST
def score_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    evaluation = get_object_or_404(ScoreEvaluation, pk=pk)
    try:
        ledger.cancel(evaluation)
    except ledger.JobNotOpen as error:
        messages.error(request, str(error))
    return redirect(evaluation)


@researcher_required
@require_GET
def scores(request: HttpRequest, pk: int) -> HttpResponse:
    evaluation = get_object_or_404(ScoreEvaluation.objects.select_related("language_model", "created_by"), pk=pk)
    lacks_worker = evaluation.is_unfinished and not ledger.has_worker(timezone.now())
    context = {"evaluation": evaluation, "document": evaluation.document, "lacks_worker": lacks_worker}
    if evaluation.document:
        width, height = (round(SHOWN * 96 * inches) for inches in precision_recall.size(evaluation.document))
        tables = (build(evaluation.document) for build in (scorer_table, replaced_table, relation_scores_table))
        context |= {"tables": list(tables), "alt_text": in_words(evaluation.document), "width": width, "height": height}
    return render(request, "evaluation/scores/scores.html", context)


def in_words(document: dict) -> str:
    parts = (f"{scorer['scorer']} {share(scorer['average_precision'])}" for scorer in document["scorers"])
    return f"Precision falling with recall, a line per setting of prompts. Average precision: {'; '.join(parts)}."


@researcher_required
@require_GET
def score_file(request: HttpRequest, pk: int, file_format: str) -> HttpResponse:
    """The figure as SVG or PDF, or everything as JSON."""
    evaluation = get_object_or_404(ScoreEvaluation.objects.exclude(document={}), pk=pk)
    name = f"scores-{pk}.{file_format}"
    if file_format == "json":
        text = json.dumps(evaluation.document, indent=2, ensure_ascii=False) + "\n"
        return as_download(text.encode(), "application/json", name)
    if file_format not in CONTENT_TYPES:
        raise Http404("Scores come as json, svg and pdf.")
    theme = THEMES.get(request.GET.get("theme", ""), LIGHT)
    size = precision_recall.size(evaluation.document)
    image = draw(precision_recall.draw, evaluation.document, size, file_format, theme)
    if "theme" in request.GET:
        return HttpResponse(image, content_type=CONTENT_TYPES[file_format])
    return as_download(image, CONTENT_TYPES[file_format], name)
