"""Pages of studies, and study files of rounds."""

from collections.abc import Callable
from textwrap import fill

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from annotation.models import Round
from annotation.rounds.views import visible_round
from evaluation.models import Study
from evaluation.studies.export import StudyFile, file_of_study, study_of_round
from evaluation.studies.files import toml_of
from evaluation.studies.outputs import published_tables
from evaluation.studies.steps import stages
from kgharvest import code_version
from kgharvest.access import researcher_required, visible_or_404
from kgharvest.errors import DomainError
from kgharvest.pages.lists import ListPage
from kgharvest.tables.downloads import download


class StudyList(ListPage):
    template_name = "evaluation/studies/study_list.html"
    searched = ("name",)
    columns = {"name": "name", "project": "project__name", "made": "created_at"}
    order = "-made"

    def rows(self):
        return Study.objects.visible_to(self.request.user).select_related("project", "round").defer("document")


def find_study(request: HttpRequest, pk: int) -> Study:
    """Return the study. Raises Http404."""
    studies = Study.objects.select_related("project", "round__project", "report", "created_by")
    return visible_or_404(request.user, studies, pk=pk)


@researcher_required
def study_detail(request: HttpRequest, pk: int) -> HttpResponse:
    study = find_study(request, pk)
    shown = stages(study)
    context = {"study": study, "stages": shown, "is_complete": all(stage.state == "done" for stage in shown)}
    context["tables"] = published_tables(study, study.report)
    return render(request, "evaluation/studies/study_detail.html", context)


@researcher_required
def study_file(request: HttpRequest, pk: int) -> HttpResponse:
    """Download the file of the study, with its relations as they were harvested."""
    study = find_study(request, pk)
    return _toml_file(request, study, lambda: file_of_study(study))


@researcher_required
def round_study_file(request: HttpRequest, path: str) -> HttpResponse:
    """Download a study file that reproduces the harvests and the sample of the round."""
    round = visible_round(request, path)
    return _toml_file(request, round, lambda: study_of_round(round))


def _toml_file(request: HttpRequest, subject: Study | Round, make: Callable[[], StudyFile]) -> HttpResponse:
    """Return the file, or the page of the study or round with the reason why there is none."""
    try:
        file = make()
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(subject)
    comments = [f"Study file of kgharvest {code_version()}: study run {subject.name}.toml", *file.notes]
    text = toml_of(file.document, "\n".join(fill(comment, 100) for comment in comments))
    return download([text], f"{subject.name}.toml", "application/toml")
