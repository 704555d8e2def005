"""Pages of studies, and study files of rounds."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from annotation.rounds.views import visible_round
from evaluation.models import Study
from evaluation.studies.export import study_of_round
from evaluation.studies.files import toml_of
from evaluation.studies.outputs import result_tables
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
        return Study.objects.visible_to(self.request.user).select_related("project", "round", "report")


def find_study(request: HttpRequest, pk: int) -> Study:
    """Return the study. Raises Http404."""
    studies = Study.objects.select_related("project", "round__project", "report", "created_by")
    return visible_or_404(request.user, studies, pk=pk)


@researcher_required
def study_detail(request: HttpRequest, pk: int) -> HttpResponse:
    study = find_study(request, pk)
    context = {"study": study, "stages": stages(study), "tables": result_tables(study, study.report)}
    context["is_complete"] = all(stage.state == "done" for stage in context["stages"])
    return render(request, "evaluation/studies/study_detail.html", context)


@researcher_required
def study_file(request: HttpRequest, pk: int) -> HttpResponse:
    study = find_study(request, pk)
    return toml_file(study.document, study.name)


@researcher_required
def round_study_file(request: HttpRequest, path: str) -> HttpResponse:
    """Download a study file that reproduces the harvests and the sample of the round."""
    round = visible_round(request, path)
    try:
        return toml_file(study_of_round(round), round.name)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(round)


def toml_file(document: dict, name: str) -> HttpResponse:
    text = toml_of(document, f"Study file of kgharvest {code_version()}: study run {name}.toml")
    return download([text], f"{name}.toml", "application/toml")
