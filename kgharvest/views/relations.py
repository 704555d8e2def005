"""Pages of relations and their sets."""

from __future__ import annotations

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from kgharvest.access import researcher_required
from kgharvest.models import HarvestJob, Relation, RelationSet
from kgharvest.views.lists import page_of, sort_key, sorted_by

RELATION_COLUMNS = {"name": "name", "set": "relation_set__name", "arity": "arity", "harvests": "n_harvests"}


@researcher_required
def relation_list(request: HttpRequest) -> HttpResponse:
    asked = request.GET.get("q", "").strip()
    set_name = request.GET.get("set", "")
    relations = Relation.objects.select_related("relation_set").annotate(n_harvests=Count("jobs"))
    if asked:
        relations = relations.filter(Q(name__icontains=asked) | Q(statement__icontains=asked))
    if set_name:
        relations = relations.filter(relation_set__name=set_name)
    sort = sort_key(request, RELATION_COLUMNS, "name")
    context = {
        "page_obj": page_of(request, sorted_by(relations, sort, RELATION_COLUMNS)),
        "sets": RelationSet.objects.values_list("name", flat=True),
        "asked": asked,
        "set_name": set_name,
        "sort": sort,
    }
    return render(request, "kgharvest/relation_list.html", context)


@researcher_required
def relation_detail(request: HttpRequest, pk: int) -> HttpResponse:
    relation = get_object_or_404(Relation.objects.select_related("relation_set"), pk=pk)
    context = {
        "relation": relation,
        "page_obj": page_of(request, HarvestJob.objects.with_cell().filter(relation=relation).order_by("-pk")),
        "can_harvest": len(relation.seed_tuples) >= 2,
    }
    return render(request, "kgharvest/relation_detail.html", context)
