"""Pages of the KG import: upload, and mapping of relations."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from kgharvest.access import Action, visible_or_404, worker_required
from kgharvest.accounts.forms import chosen_project, offer_projects
from kgharvest.contrib.knowledge_graphs.imports.forms import MappingForm, UploadForm
from kgharvest.contrib.knowledge_graphs.imports.uploads import import_upload, staged_upload, store_upload
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
            upload = store_upload(sent["system"], *files, by=request.user, project=chosen_project(form, request))
            return redirect("knowledge_graphs:kg_mapping", upload.pk)
    return render(request, "knowledge_graphs/imports/kg_upload.html", {"form": form})


@worker_required
def kg_mapping(request: HttpRequest, pk: int) -> HttpResponse:
    """Map the relations. The button "preview" shows example statements, other buttons import the file."""
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
                    kg = import_upload(upload, staged, targets, request.user)
                    n_tuples = counted(sum(job.n_tuples for job in kg.jobs), "tuple")
                    text = f"{n_tuples} imported in {counted(len(kg.jobs), 'harvest')}."
                    if kg.n_left_out:
                        text += f" {counted(kg.n_left_out, 'statement')} of unmapped relations skipped."
                    messages.success(request, text)
                    return redirect(kg.launch)
    context = {
        "upload": upload,
        "form": form,
        "preview": preview,
        "n_relations": len(relations),
        "n_hidden": max(0, len(relations) - RELATIONS_ON_PAGE),
        "n_statements": sum(relation.n_statements for relation in relations),
    }
    return render(request, "knowledge_graphs/imports/kg_mapping.html", context)
