"""Page of the entity table of a relation set."""

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from kgharvest.access import Action, researcher_required, visible_or_404
from kgharvest.bulk.file_reading import upload_limit
from kgharvest.entities.models import EntityTable
from kgharvest.entities.tables import delete_table, save_table
from kgharvest.pages.number_format import counted
from kgharvest.pages.refusals import refusal_in_form
from kgharvest.relations.models import RelationSet


class EntityTableForm(forms.ModelForm):
    file = forms.FileField(
        label="Labels",
        required=False,
        validators=[upload_limit("import it on the server with the command link_entities")],
        help_text="File with one entity per line: tab-separated label, aliases (separated by |), and id. It replaces "
        "the current names. Leave empty to keep them.",
    )

    class Meta:
        model = EntityTable
        fields = ["without_articles", "in_singular"]


SETS = RelationSet.objects.select_related("project")


@researcher_required
def set_entities(request: HttpRequest, pk: int) -> HttpResponse:
    """Show and change the entity table of a set. The button "delete" deletes the table."""
    relation_set = visible_or_404(request.user, SETS, Action.WORK, pk=pk, is_shipped=False)
    table = EntityTable.objects.filter(relation_set=relation_set).first()
    if "delete" in request.POST:
        delete_table(relation_set, request.user)
        messages.success(request, "Entity table removed.")
        return redirect(relation_set)
    form = EntityTableForm(request.POST or None, request.FILES or None, instance=table)
    if form.is_valid():
        uploaded = form.cleaned_data["file"]
        file = (uploaded.name, uploaded.read()) if uploaded else None
        rules = (form.cleaned_data["without_articles"], form.cleaned_data["in_singular"])
        with refusal_in_form(form):
            table = save_table(relation_set, *rules, file, request.user)
            messages.success(request, f"Entity table saved with {counted(table.n_labels, 'label')}.")
            return redirect("kgharvest:set_entities", relation_set.pk)
    context = {"form": form, "relation_set": relation_set, "table": table}
    return render(request, "kgharvest/entities/set_entities.html", context)
