"""The pages on which people say what makes two entities of a set one, and accept what a service proposes."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from kgharvest.access import Action, researcher_required, visible_or_404
from kgharvest.bulk.pagination import number_in
from kgharvest.entities.forms import EntityTableForm, LookupForm
from kgharvest.entities.models import EntityTable
from kgharvest.entities.reconciliation import accept_matches, decide_on_candidates, lookups_of, queue_lookup
from kgharvest.entities.tables import delete_table, save_table
from kgharvest.errors import DomainError, ImportRefused
from kgharvest.pages.number_format import counted
from kgharvest.relations.models import RelationSet

SETS = RelationSet.objects.select_related("project")


@researcher_required
def set_entities(request: HttpRequest, pk: int) -> HttpResponse:
    """Show and change the table of a set; the button "delete" takes it away."""
    relation_set = visible_or_404(request.user, SETS, Action.WORK, pk=pk, is_shipped=False)
    table = EntityTable.objects.filter(relation_set=relation_set).first()
    if "delete" in request.POST:
        delete_table(relation_set, request.user)
        messages.success(request, "Entities are taken as they are written again.")
        return redirect(relation_set)
    form = EntityTableForm(request.POST or None, request.FILES or None, instance=table)
    refusal = None
    if form.is_valid():
        chosen = form.cleaned_data
        rules = (chosen["without_articles"], chosen["in_singular"])
        try:
            table = save_table(relation_set, *rules, form.named_file(), request.user)
        except ImportRefused as error:
            refusal = error
        else:
            messages.success(request, f"Kept, with {counted(table.n_labels, 'label')}.")
            return redirect("kgharvest:set_entities", relation_set.pk)
    context = {"form": form, "relation_set": relation_set, "table": table, "refusal": refusal}
    return render(request, "kgharvest/entities/set_entities.html", context)


NAMES_PER_PAGE = 25
NONE_OF_THESE = "none"


@researcher_required
def entity_candidates(request: HttpRequest, pk: int) -> HttpResponse:
    """Have a set's entities looked up at a service, and decide on what it proposes."""
    relation_set = visible_or_404(request.user, SETS, Action.WORK, pk=pk, is_shipped=False)
    form = LookupForm(request.POST if "lookup" in request.POST else None)
    if request.method == "POST" and ("lookup" not in request.POST or form.is_valid()):
        try:
            messages.success(request, _act(request, relation_set, form))
            return redirect("kgharvest:entity_candidates", relation_set.pk)
        except DomainError as error:
            messages.error(request, str(error))
    candidates = relation_set.entity_candidates
    names = candidates.order_by("name").values_list("name", flat=True).distinct()
    page = Paginator(names, NAMES_PER_PAGE).get_page(request.GET.get("page"))
    of_page = candidates.filter(name__in=list(page)).best_first()
    context = {
        "form": form,
        "relation_set": relation_set,
        "lookup": lookups_of(relation_set).first(),
        "page_obj": page,
        "proposals": [(name, list(group)) for name, group in groupby(of_page, key=attrgetter("name"))],
        "n_matches": candidates.filter(is_match=True).values("name").distinct().count(),
        "none": NONE_OF_THESE,
    }
    return render(request, "kgharvest/entities/entity_candidates.html", context)


def _act(request: HttpRequest, relation_set: RelationSet, form: LookupForm) -> str:
    """Do what the button says; return what to tell."""
    if "lookup" in request.POST:
        queue_lookup(relation_set, form.cleaned_data["url"], form.cleaned_data["type"], request.user)
        return "A worker looks the entities up."
    if "matches" in request.POST:
        n_linked = accept_matches(relation_set, request.user)
    else:
        chosen = {key.removeprefix("name:"): value for key, value in request.POST.items() if key.startswith("name:")}
        refused = [name for name, value in chosen.items() if value == NONE_OF_THESE]
        accepted = [number for value in chosen.values() if (number := number_in(value)) is not None]
        n_linked = decide_on_candidates(relation_set, accepted, refused, request.user)
    return f"{counted(n_linked, 'name')} linked."
