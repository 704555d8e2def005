"""Pages of judge runs for researchers: list, form, and run details."""

from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from annotation.judges.files.answer_export import FORMATS, export_answers
from annotation.judges.files.answer_import import import_answers
from annotation.judges.labels import label_counts, n_flipped
from annotation.judges.models import JudgeKind, JudgeRun
from annotation.judges.prompts import DEFAULT_PROMPT
from annotation.judges.runs import continue_run, estimated_usage, queue_run, usage_of
from annotation.rounds.forms import option_field
from annotation.rounds.views import visible_round
from kgharvest.access import Action, allowed_actions, check_may, researcher_required
from kgharvest.bulk.file_reading import LARGEST_FILE, LARGEST_FILE_MB
from kgharvest.bulk.pagination import page_of
from kgharvest.engine.language_models.networks.placement import DEFAULT_DEVICE
from kgharvest.errors import DomainError
from kgharvest.jobs import ledger, workers
from kgharvest.jobs.queues import HARVEST
from kgharvest.models import LanguageModel
from kgharvest.pages.refusals import refusal_as_message, refusal_in_form
from kgharvest.tables.downloads import download


class JudgeForm(forms.ModelForm):
    """Form with the options of a judge spec. GROUPS: collapsed groups of fields."""

    FIRST = ("name", "judge_kind", "model", "base_url", "threshold", "answers")
    GROUPS = (
        ("Prompt", ("prompt", "n_examples", "example_order", "max_completion_tokens")),
        ("Repeats and panel", ("temperature", "seed", "repeats", "panel")),
        ("Budget", ("max_tokens_total", "budget", "prompt_price", "completion_price", "limit")),
        ("Rate limits and device", ("n_parallel", "requests_per_minute", "timeout_s", "revision", "device", "dtype")),
    )

    answers = forms.FileField(
        label="Answer file",
        required=False,
        help_text="For kind file: JSON lines of kgharvest or lm-eval, or a JSON log of inspect-ai.",
    )

    class Meta:
        model = JudgeRun
        fields = ("judge_kind", *JudgeRun.OPTIONS)
        formfield_callback = option_field

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.fields["judge_kind"] = forms.ChoiceField(label="Kind", choices=JudgeKind.choices)
        self.fields["device"] = forms.ChoiceField(
            choices=[(name, name) for name in workers.devices_offered(timezone.now())],
            initial=DEFAULT_DEVICE,
            required=False,
            help_text=JudgeRun._meta.get_field("device").help_text,
        )
        self.fields["prompt"].widget.attrs["placeholder"] = DEFAULT_PROMPT

    def _post_clean(self) -> None:
        """Skip model validation, because validation of the spec returns better messages."""

    def clean_answers(self):
        file = self.cleaned_data["answers"]
        if file and file.size > LARGEST_FILE:
            raise forms.ValidationError(
                f"The file exceeds {LARGEST_FILE_MB} MB. Import it on the server with judge_tuples."
            )
        return file

    def document(self) -> dict[str, Any]:
        """Return the judge spec without empty fields."""
        spec = {name: value for name, value in self.cleaned_data.items() if value not in (None, "")}
        spec.pop("answers", None)
        kind = spec.pop("judge_kind")
        numbers = {name: float(value) for name, value in spec.items() if isinstance(value, Decimal)}
        return {"kind": kind, **spec, **numbers}

    def first_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.FIRST]

    def groups(self) -> list[tuple[str, list[forms.BoundField], bool]]:
        """Return (heading, fields, has_errors) for each group. Groups with errors are expanded."""
        groups = [(heading, [self[name] for name in names]) for heading, names in self.GROUPS]
        return [(heading, fields, any(field.errors for field in fields)) for heading, fields in groups]


@researcher_required
@require_GET
def judge_run_list(request: HttpRequest, path: str) -> HttpResponse:
    round = visible_round(request, path)
    context = {
        "round": round,
        "page_obj": page_of(request, round.judge_runs.for_list()),
        "may": allowed_actions(request.user, round.project),
    }
    return render(request, "annotation/judges/judge_run_list.html", context)


@researcher_required
def judge_run_new(request: HttpRequest, path: str) -> HttpResponse:
    """Show the form, estimate the usage, or start the run, depending on the button."""
    round = visible_round(request, path, Action.WORK)
    form = JudgeForm(request.POST or None, request.FILES or None)
    context: dict[str, Any] = {"round": round, "form": form, "lacks_worker": workers.lacking(timezone.now(), {HARVEST})}
    if form.is_valid():
        document, file = form.document(), form.cleaned_data["answers"]
        with refusal_in_form(form):
            if request.POST.get("action") == "estimate":
                context["estimate"] = estimated_usage(round, document, request.user)
            elif document["kind"] != JudgeKind.FILE:
                return redirect(queue_run(round, document, request.user))
            elif file:
                return redirect(import_answers(round, document, file.read(), file.name, request.user))
            else:
                raise DomainError("BadJudgeSpec", "The answer file is missing. Choose a file.")
    return render(request, "annotation/judges/judge_run_new.html", context)


def visible_run(request: HttpRequest, path: str, name: str, action: Action = Action.VIEW) -> JudgeRun:
    """Return the named run if the user may perform `action` on it. Raises Http404 or NotAllowed."""
    round = visible_round(request, path)
    run = get_object_or_404(round.judge_runs.for_list(), name=name)
    if action != Action.VIEW:
        check_may(request.user, action, round.project)
    return run


@researcher_required
@require_GET
def judge_run(request: HttpRequest, path: str, name: str) -> HttpResponse:
    run = visible_run(request, path, name)
    unparsable = run.answers.filter(label="").select_related("knowledge_tuple__relation").order_by("pk")
    context = {
        "round": run.round,
        "run": run,
        "used": usage_of(run),
        "counts": label_counts(run),
        "n_flipped": n_flipped(run),
        "page_obj": page_of(request, unparsable),
        "panel": run.round.judge_runs.filter(panel=run.panel).exclude(pk=run.pk) if run.panel else [],
        "is_demonstrator": LanguageModel.objects.filter(name=run.model, is_demonstrator=True).exists(),
        "may": allowed_actions(request.user, run.project),
        "lacks_worker": workers.lacking_for(run, timezone.now()),
    }
    return render(request, "annotation/judges/judge_run.html", context)


@researcher_required
@require_POST
def judge_run_cancel(request: HttpRequest, path: str, name: str) -> HttpResponse:
    run = visible_run(request, path, name, Action.WORK)
    with refusal_as_message(request):
        ledger.cancel(run, request.user)
    return redirect(run)


class LimitsForm(forms.ModelForm):
    class Meta:
        model = JudgeRun
        fields = JudgeRun.LIMITS


@researcher_required
@require_POST
def judge_run_continue(request: HttpRequest, path: str, name: str) -> HttpResponse:
    """Queue a stopped run again, with the submitted limits."""
    run = visible_run(request, path, name, Action.WORK)
    form = LimitsForm(request.POST)
    if not form.is_valid():
        messages.error(request, " ".join(error for errors in form.errors.values() for error in errors))
        return redirect(run)
    with refusal_as_message(request):
        continue_run(run, {name: form.cleaned_data[name] for name in form.fields if name in request.POST}, request.user)
    return redirect(run)


@researcher_required
@require_GET
def judge_run_file(request: HttpRequest, path: str, name: str, file_format: str) -> HttpResponse:
    return answers_file(visible_run(request, path, name), file_format)


def answers_file(run: JudgeRun, file_format: str) -> HttpResponse:
    if file_format not in FORMATS:
        raise Http404(f"Unknown format. Use one of {', '.join(FORMATS)}.")
    written = FORMATS[file_format]
    name = f"{run.round.name}-{run.name}-{file_format}.{written.extension}"
    return download(export_answers(run, file_format), name, written.media_type)
