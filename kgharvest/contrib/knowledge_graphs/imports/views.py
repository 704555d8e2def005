"""Pages of the KG import: the upload page and the page to map relations."""

from collections.abc import Iterator, Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from kgharvest.access import Action, visible_or_404, worker_required
from kgharvest.accounts.forms import ProjectField, chosen_project, offer_projects
from kgharvest.bulk.file_reading import upload_limit
from kgharvest.contrib.knowledge_graphs.imports import mapping
from kgharvest.contrib.knowledge_graphs.imports.kg_import import import_upload, staged_upload, store_upload
from kgharvest.contrib.knowledge_graphs.imports.statements import FORMATS, FileRelation
from kgharvest.contrib.knowledge_graphs.models import UploadedKG
from kgharvest.models import Relation
from kgharvest.pages.number_format import counted
from kgharvest.pages.refusals import refusal_in_form
from kgharvest.relations.forms import DatalistInput

RELATIONS_ON_PAGE = 50
STATEMENTS_SHOWN = 3
MOST_OPTIONS = 1000  # maximum number of suggestions per field
check_file_size = upload_limit("import it with the command import_kg")


class UploadForm(forms.Form):
    file = forms.FileField(
        validators=[check_file_size], help_text="TSV or CSV with head, relation, and tail; N-Triples; or JSON Lines."
    )
    system = forms.CharField(
        label="Source system", max_length=500, help_text="Source system, for example GPTKB. Shown in the LM column."
    )
    file_format = forms.ChoiceField(
        label="Format",
        choices=[("auto", "detect automatically"), *((name, label) for name, (label, _) in FORMATS.items())],
        initial="auto",
    )
    labels = forms.FileField(
        required=False,
        validators=[check_file_size],
        help_text="Labels of the ids in the file. One id and label per line, separated by a tab.",
    )
    project = ProjectField()


class MappingForm(forms.Form):
    """Form with two fields for each relation of the file: an existing relation and a template.

    Unmapped relations are ignored.
    """

    def __init__(self, relations: Sequence[FileRelation], existing: QuerySet[Relation], *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._relations, self._existing = relations, existing
        paths = existing.order_by("relation_set__name", "name").values_list("relation_set__name", "name")
        options = tuple("/".join(path) for path in paths[:MOST_OPTIONS])
        suggested_targets = mapping.targets_by_name([relation.name for relation in relations], existing)
        for number, relation in enumerate(relations):
            widget = DatalistInput()
            widget.options = options
            target = suggested_targets.get(relation.name)
            self.fields[f"relation_{number}"] = forms.CharField(
                label="Target relation",
                required=False,
                max_length=201,
                widget=widget,
                initial=target.name if target else "",
            )
            self.fields[f"template_{number}"] = forms.CharField(
                label="New relation template",
                required=False,
                max_length=1000,
                widget=forms.TextInput(attrs={"placeholder": "[HEAD] … [TAIL].", "size": 40}),
            )

    def rows(self) -> Iterator[tuple[FileRelation, forms.BoundField, forms.BoundField, str]]:
        """Yield each relation of the file with its two fields and its available slots besides [HEAD] and [TAIL]."""
        for number, relation in enumerate(self._relations):
            slots = ", ".join(f"[{name}]" for name in relation.others)
            yield relation, self[f"relation_{number}"], self[f"template_{number}"], slots

    def targets(self) -> dict[str, mapping.Target]:
        """Return a mapping from the names of relations in the file to targets. The form must be valid.

        Adds errors to the fields.
        """
        targets: dict[str, mapping.Target] = {}
        for number, relation in enumerate(self._relations):
            name, template = (self.cleaned_data[f"{field}_{number}"].strip() for field in ("relation", "template"))
            try:
                if name and template:
                    raise mapping.BadMapping("Enter a target relation or a template, not both.")
                if name:
                    target = mapping.existing_target(name, self._existing)
                    slots, others = target.slots[2:], relation.others
                    # If the file does not name all slots (ENT2, ENT3, ...), its other values fill them in order.
                    values = [value for value in others if not value.startswith("ENT")][: len(slots)]
                    if not set(slots) <= set(others) and len(values) == len(slots):
                        target = mapping.existing_target(name, self._existing, values)
                    targets[relation.name] = target
                elif template:
                    targets[relation.name] = mapping.new_target(mapping.default_name(relation.name), template)
            except mapping.BadMapping as error:
                self.add_error(f"{'template' if template else 'relation'}_{number}", str(error))
        return targets


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
    """Map the relations of a file. The button "preview" shows example statements; the other button imports the file."""
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
                    n_tuples = counted(kg.n_tuples, "tuple")
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
