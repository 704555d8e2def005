"""Pages of the knowledge base: the tuples that harvests found, and one tuple."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render

from kgharvest.access import researcher_required
from kgharvest.bulk import pagination
from kgharvest.bulk.pagination import COUNTED_UP_TO, ROWS_PER_PAGE, bounded_count, keyset_page
from kgharvest.bulk.search_filters import apply_filters, has_entity
from kgharvest.errors import DomainError
from kgharvest.harvests.views import lacks_worker
from kgharvest.knowledge.entity_graph import SHAPES
from kgharvest.knowledge.forms import CurationForm
from kgharvest.knowledge.search import KnowledgeSearch
from kgharvest.knowledge.sensitive_words import read_words, replace_words, shipped_words
from kgharvest.knowledge.verdicts import TupleVerdicts, verdicts_known_to
from kgharvest.models import (
    EntityOccurrence,
    HarvestedTuple,
    Job,
    KnowledgeTuple,
    Relation,
    SensitiveWord,
)
from kgharvest.names import shortest_names

TUPLE_COLUMNS = {"score": "best_score", "harvests": "n_harvests", "age": "pk"}
MOST_FINDINGS = 200  # harvests that a tuple's page lists


@researcher_required
def tuple_list(request: HttpRequest) -> HttpResponse:
    verdicts = verdicts_known_to(request.user)
    search = KnowledgeSearch(request.GET, verdicts)
    sort = pagination.sort_key(request, TUPLE_COLUMNS, "-score")
    filtered = search.filtered()
    sign = "-" if sort.startswith("-") else ""
    column = sign + TUPLE_COLUMNS[sort.removeprefix("-")]
    page = keyset_page(filtered, column, request.GET, pagination.ROWS_PER_PAGE)
    context = {
        "search": search,
        "page": page,
        "rows": with_findings(page.rows, verdicts),
        "n": None if filtered.scanned is not None else bounded_count(filtered.rows),
        "most": COUNTED_UP_TO,
        "sort": sort,
    }
    return render(request, "kgharvest/knowledge/tuple_list.html", context)


def with_findings(tuples: Sequence[KnowledgeTuple], verdicts: TupleVerdicts) -> list[dict[str, Any]]:
    """Return each tuple with the cells that found it, settings by LM, and its judged tasks."""
    ids = [known.pk for known in tuples]
    cells = _cells(ids)
    judged = verdicts.of(ids)
    return [
        {"tuple": known, "found_by": cells.get(known.pk, {}), "tasks": judged.get(known.pk, [])} for known in tuples
    ]


def _cells(ids: Iterable[int]) -> dict[int, dict[str, list[str]]]:
    columns = ("knowledge_tuple", "job__language_model__name", "job__setting")
    found = HarvestedTuple.objects.filter(knowledge_tuple__in=ids).order_by().values_list(*columns).distinct()
    cells: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    names = shortest_names(model for _, model, _ in found)
    for known, model, setting in sorted(found):
        cells[known][names[model]].append(setting)
    return {known: dict(by_model) for known, by_model in cells.items()}


@researcher_required
def tuple_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """The tuple's page; its form records a decision about it."""
    known = get_object_or_404(KnowledgeTuple.objects.select_related("relation__relation_set"), pk=pk)
    form = CurationForm(known, request.POST or None)
    if form.is_valid():
        try:
            form.decide(request.user)
        except DomainError as refusal:
            form.add_error(None, str(refusal))
        else:
            messages.success(request, "The decision is recorded.")
            return redirect(known)
    found = known.harvested_tuples.select_related("job__language_model").defer("job__payload", "job__summary")
    found = list(found.order_by("-score", "pk")[:MOST_FINDINGS])
    context = {
        "known": known,
        "found": found,
        "surface": found[0].surface if found else known.entities,
        "curations": known.curations.select_related("decided_by"),
        "form": form,
    }
    return render(request, "kgharvest/knowledge/tuple_detail.html", context)


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
    filtered = apply_filters(KnowledgeTuple.objects.found().with_relation(), [has_entity(entity)])
    return keyset_page(filtered, "-best_score", QueryDict(), ROWS_PER_PAGE).rows


def _places(entity: str) -> list[dict[str, Any]]:
    """Return the relations and slots that the entity occurs in, with the number of tuples, most first."""
    occurrences = EntityOccurrence.objects.of(entity).order_by().values("relation", "slot").annotate(n=Count("*"))
    places = sorted(occurrences, key=lambda place: (-place["n"], place["relation"], place["slot"]))
    relations = Relation.objects.select_related("relation_set").in_bulk({place["relation"] for place in places})
    return [place | {"relation": relations[place["relation"]]} for place in places]


def _is_at(known: KnowledgeTuple, place: dict[str, Any], entity: str) -> bool:
    return known.relation_id == place["relation"].pk and known.entities[place["slot"]] == entity


class WordsForm(forms.Form):
    words = forms.CharField(
        required=False,
        label="Words and phrases",
        widget=forms.Textarea(attrs={"rows": 16, "spellcheck": "false"}),
        help_text="One a line. Whole words of an entity are compared, case does not matter.",
    )


@researcher_required
def sensitive_words(request: HttpRequest) -> HttpResponse:
    listed = list(SensitiveWord.objects.values_list("word", flat=True))
    form = WordsForm(request.POST or None, initial={"words": "\n".join(listed)})
    if form.is_valid():
        words = shipped_words() if "shipped" in request.POST else read_words(form.cleaned_data["words"])
        try:
            job = replace_words(words, request.user)
        except DomainError as refusal:
            form.add_error("words", str(refusal))
        else:
            messages.success(request, _answer(len(words), job))
            return redirect("kgharvest:sensitive_words")
    marking = Job.objects.filter(kind="mark_sensitive").first()
    context = {
        "form": form,
        "n_words": len(listed),
        "n_marked": bounded_count(KnowledgeTuple.objects.filter(is_sensitive=True)),
        "most": COUNTED_UP_TO,
        "is_shipped": listed == shipped_words(),
        "marking": marking,
        "lacks_worker": marking is not None and marking.is_unfinished and lacks_worker(),
    }
    return render(request, "kgharvest/knowledge/sensitive_words.html", context)


def _answer(n_words: int, job: Job | None) -> str:
    if job is None:
        return "The list is the same as before; nothing was changed."
    return f"The list has {n_words} entries now; a worker marks the tuples by it."
