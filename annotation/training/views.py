"""Training pages for annotators."""

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods

from annotation.judging.views import for_annotator
from annotation.models import Annotator, Label
from annotation.rounds.instructions import instructions_html
from annotation.training import services


class TrainingAnswerForm(forms.Form):
    position = forms.IntegerField(min_value=0, max_value=1000)
    label = forms.ChoiceField(choices=Label.choices)


@require_http_methods(["GET", "POST"])
@for_annotator
def training(request: HttpRequest, annotator: Annotator) -> HttpResponse:
    """Store an answer, or show the correct label with its reason, the next statement, or the last training's result."""
    if not annotator.round.training_size:
        raise Http404("This round has no training.")
    if request.method == "POST":
        url = reverse("annotation:training", args=[annotator.round_id])
        form = TrainingAnswerForm(request.POST)
        if not form.is_valid():
            services.current_training(annotator, timezone.now())  # start or resume the training
        elif services.answer_training(annotator, **form.cleaned_data, now=timezone.now()):
            return redirect(f"{url}?{urlencode(form.cleaned_data)}")
        return redirect(url)
    statements = annotator.round.training_statements
    context = {
        "round": annotator.round,
        "labels": Label,
        "n_statements": statements.count(),
        "instructions": instructions_html(annotator.round),
    }
    unfinished, finished = annotator.trainings.filter(finished_at=None).first(), services.last_training(annotator)
    if "label" in request.GET:
        form = TrainingAnswerForm(request.GET)
        if not form.is_valid():
            raise Http404("Invalid answer.")
        label = form.cleaned_data["label"]
        statement = services.answered_statement(annotator, form.cleaned_data["position"])
        if statement is None:
            raise Http404("This statement has not been answered yet.")
        context |= {"statement": statement, "given": Label(label), "is_right": label == statement.label}
        return render(request, "annotation/training/reason.html", context)
    if finished and unfinished is None:
        by_position = {statement.position: statement for statement in statements.all()}
        missed = [(by_position[position], Label(label)) for position, label in finished.missed]
        context |= {"training": finished, "missed": missed}
        return render(request, "annotation/training/done.html", context)
    statement = services.next_statement(services.current_training(annotator, timezone.now()))
    return render(request, "annotation/training/statement.html", context | {"statement": statement})
