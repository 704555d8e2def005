"""Pages that import a KG: first the upload, then the mapping of its relations."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from kgharvest.access import Action, visible_or_404, worker_required
from kgharvest.accounts.forms import chosen_project, offer_projects
from kgharvest.contrib.knowledge_graphs.imports.forms import MappingForm, UploadForm
from kgharvest.contrib.knowledge_graphs.imports.kg_import import ImportedKG
from kgharvest.contrib.knowledge_graphs.imports.uploads import import_upload, keep_upload, staged_upload
from kgharvest.contrib.knowledge_graphs.models import UploadedKG
from kgharvest.models import Relation
from kgharvest.pages.number_format import counted
from kgharvest.pages.refusals import refusal_in_form

RELATIONS_ON_PAGE = 50
STATEMENTS_SHOWN = 3


@worker_required
def kg_upload(request: HttpRequest) -> HttpResponse:
    form = UploadForm(request.POST or None, request.FILES or None)
    offer_projects(form, request)
    if form.is_valid():
        sent = form.cleaned_data
        with refusal_in_form(form):
            files = (sent["file"], sent["labels"], sent["file_format"], timezone.now())
            upload = keep_upload(sent["system"], *files, by=request.user, project=chosen_project(form, request))
            return redirect("knowledge_graphs:kg_mapping", upload.pk)
    return render(request, "knowledge_graphs/imports/kg_upload.html", {"form": form})


@worker_required
def kg_mapping(request: HttpRequest, pk: int) -> HttpResponse:
    """Map the relations. The button "preview" shows example statements; any other button imports the file."""
    upload = visible_or_404(request.user, UploadedKG.objects.select_related("project"), Action.WORK, pk=pk)
    preview = []
    with staged_upload(upload) as staged:
        relations = staged.relations()
        on_page = [staged.with_others(relation) for relation in relations[:RELATIONS_ON_PAGE]]
        form = MappingForm(on_page, Relation.objects.visible_to(request.user), request.POST or None)
        if form.is_valid() and (targets := form.targets()) is not None and form.is_valid():
            for name, target in targets.items():
                tuples = map(target.entities_of, staged.statements(name, STATEMENTS_SHOWN))
                complete = [entities for entities in tuples if None not in entities]
                preview.append({"name": name, "target": target, "tuples": complete})
            if "preview" not in request.POST:
                with refusal_in_form(form):
                    return imported(request, import_upload(upload, staged, targets, request.user))
    context = {
        "upload": upload,
        "form": form,
        "preview": preview,
        "n_relations": len(relations),
        "n_hidden": max(0, len(relations) - RELATIONS_ON_PAGE),
        "n_statements": sum(relation.n_statements for relation in relations),
    }
    return render(request, "knowledge_graphs/imports/kg_mapping.html", context)


def imported(request: HttpRequest, kg: ImportedKG) -> HttpResponse:
    n_tuples = sum(job.n_tuples for job in kg.jobs)
    left_out = f" {counted(kg.n_left_out, 'statement')} of other relations left out." if kg.n_left_out else ""
    text = f"{counted(n_tuples, 'tuple')} in {counted(len(kg.jobs), 'harvest')} imported.{left_out}"
    messages.success(request, text)
    return redirect(kg.launch)
