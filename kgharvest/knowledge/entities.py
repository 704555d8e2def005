"""An entity's page and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render

from kgharvest.access import researcher_required
from kgharvest.bulk.lists import ROWS_PER_PAGE
from kgharvest.bulk.pagination import keyset_page
from kgharvest.bulk.search_filters import has_entity, narrow
from kgharvest.knowledge.entity_graph import SHAPES
from kgharvest.knowledge.verdicts import verdicts_known_to
from kgharvest.knowledge.views import with_findings
from kgharvest.models import EntityOccurrence, KnowledgeTuple, Relation


@researcher_required
def entity_detail(request: HttpRequest) -> HttpResponse:
    """Everything that the entity "name" takes part in, by relation and slot."""
    name = _name(request)
    if not name:
        return redirect("kgharvest:tuple_list")
    places = _places(name)
    if not places:
        raise Http404(f"No harvest found a tuple with the entity {name[:80]!r}.")
    best = _best_tuples(name)
    rows = with_findings(best, verdicts_known_to(request.user))
    for place in places:
        place["entities"] = [name if slot == place["slot"] else "…" for slot in range(place["relation"].arity)]
        place["rows"] = [row for row in rows if _is_at(row["tuple"], place, name)]
    n = sum(place["n"] for place in places)
    graphs = {shape: draw(name, best) for shape, draw in SHAPES.items()}
    context = {"entity": name, "places": places, "n": n, "n_shown": len(best), "graphs": graphs}
    return render(request, "kgharvest/knowledge/entity_detail.html", context)


@researcher_required
def entity_graph(request: HttpRequest) -> HttpResponse:
    name = _name(request)
    draw = SHAPES.get(request.GET.get("shape"), SHAPES["wide"])
    graph = draw(name, _best_tuples(name))
    return render(request, "kgharvest/knowledge/entity_graph.svg", {"graph": graph}, content_type="image/svg+xml")


def _name(request: HttpRequest) -> str:
    return request.GET.get("name", "").strip().casefold()


def _best_tuples(entity: str) -> Sequence[KnowledgeTuple]:
    narrowed = narrow(KnowledgeTuple.objects.found().with_relation(), [has_entity(entity)])
    return keyset_page(narrowed, "-best_score", QueryDict(), ROWS_PER_PAGE).rows


def _places(entity: str) -> list[dict[str, Any]]:
    """Return the relations and slots that the entity occurs in, with the number of tuples, most first."""
    occurrences = EntityOccurrence.objects.of(entity).order_by().values("relation", "slot").annotate(n=Count("*"))
    places = sorted(occurrences, key=lambda place: (-place["n"], place["relation"], place["slot"]))
    relations = Relation.objects.select_related("relation_set").in_bulk({place["relation"] for place in places})
    return [place | {"relation": relations[place["relation"]]} for place in places]


def _is_at(known: KnowledgeTuple, place: dict[str, Any], entity: str) -> bool:
    return known.relation_id == place["relation"].pk and known.entities[place["slot"]] == entity
