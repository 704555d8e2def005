"""Pages of sets of relations: import, export, duplicate, rename, delete."""

from __future__ import annotations

from django.contrib import messages
from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from kgharvest.access import researcher_required
from kgharvest.errors import DomainError, ImportRefused
from kgharvest.models import RelationSet
from kgharvest.relations.files import export_relations
from kgharvest.relations.forms import DuplicateSetForm, ImportForm, PromptsForm, SetForm
from kgharvest.relations.prompt_files import import_prompts
from kgharvest.relations.services import change_set, delete_set, duplicate_set, import_relation_file


@researcher_required
def relation_import(request: HttpRequest) -> HttpResponse:
    form = ImportForm(request.POST or None, request.FILES or None, initial={"set_name": request.GET.get("set", "")})
    refused = None
    if form.is_valid():
        try:
            file = form.relation_file()
            relation_set = import_relation_file(file, form.cleaned_data["set_name"].strip() or None)
        except ImportRefused as refusal:
            refused = refusal
        except DomainError as refusal:
            form.add_error(None, str(refusal))
        else:
            n = len(file.entries)
            messages.success(request, f"{n} relation{'' if n == 1 else 's'} of {file.source} imported.")
            return redirect(relation_set)
    return render(request, "kgharvest/relations/relation_import.html", {"form": form, "refused": refused})


@researcher_required
def set_prompts(request: HttpRequest, pk: int) -> HttpResponse:
    """Add prompts from files to those of the set's relations."""
    relation_set = get_object_or_404(RelationSet, pk=pk, is_shipped=False)
    form = PromptsForm(request.POST or None, request.FILES or None)
    refused = None
    if form.is_valid():
        try:
            imported = import_prompts(form.prompt_files(), relation_set, form.cleaned_data["least_weight"])
        except ImportRefused as refusal:
            refused = refusal
        except DomainError as refusal:
            form.add_error(None, str(refusal))
        else:
            messages.success(request, f"{imported}.")
            if imported.unknown:
                messages.warning(request, f"The set has no binary relation {', '.join(imported.unknown)}.")
            return redirect(relation_set)
    context = {"form": form, "relation_set": relation_set, "refused": refused}
    return render(request, "kgharvest/relations/set_prompts.html", context)


@researcher_required
def set_export(request: HttpRequest, pk: int) -> HttpResponse:
    relation_set = get_object_or_404(RelationSet, pk=pk)
    response = HttpResponse(export_relations(relation_set), content_type="application/json; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{relation_set.name}.json"'
    return response


@researcher_required
def set_duplicate(request: HttpRequest, pk: int) -> HttpResponse:
    relation_set = get_object_or_404(RelationSet, pk=pk)
    form = DuplicateSetForm(request.POST or None, initial={"name": f"{relation_set.name[:90]}-copy"})
    if form.is_valid():
        try:
            return redirect(duplicate_set(relation_set, form.cleaned_data["name"]))
        except DomainError as refusal:
            form.add_error("name", str(refusal))
    return _ask(request, form, relation_set, f"Duplicate {relation_set.name}", "Duplicate")


@researcher_required
def set_edit(request: HttpRequest, pk: int) -> HttpResponse:
    relation_set = get_object_or_404(RelationSet, pk=pk, is_shipped=False)
    now = {"name": relation_set.name, "description": relation_set.description}
    form = SetForm(request.POST or None, initial=now)
    if form.is_valid():
        try:
            change_set(relation_set, **form.cleaned_data)
            return redirect(relation_set)
        except DomainError as refusal:
            form.add_error("name", str(refusal))
    return _ask(request, form, relation_set, f"Edit {relation_set.name}", "Save")


@researcher_required
def set_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask (GET), then delete (POST)."""
    relation_set = get_object_or_404(RelationSet, pk=pk)
    if request.method == "POST":
        try:
            delete_set(relation_set)
        except DomainError as refusal:
            messages.error(request, str(refusal))
            return redirect(relation_set)
        messages.success(request, f"The set {relation_set.name} is deleted.")
        return redirect(reverse("kgharvest:relation_list"))
    n = relation_set.relations.count()
    heading = f"Delete {relation_set.name} with its {n} relation{'' if n == 1 else 's'}?"
    return _ask(request, Form(), relation_set, heading, "Delete the set")


def _ask(request: HttpRequest, form: Form, relation_set: RelationSet, heading: str, verb: str) -> HttpResponse:
    context = {"form": form, "relation_set": relation_set, "heading": heading, "verb": verb}
    return render(request, "kgharvest/relations/set_form.html", context)
