"""Pages of the knowledge base: the tuples that harvests found, and one tuple."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from kgharvest.access import researcher_required
from kgharvest.bulk import lists
from kgharvest.bulk.pagination import COUNTED_UP_TO, bounded_count, keyset_page
from kgharvest.errors import DomainError
from kgharvest.knowledge.forms import CurationForm
from kgharvest.knowledge.search import KnowledgeSearch
from kgharvest.knowledge.verdicts import TupleVerdicts, verdicts_known_to
from kgharvest.models import HarvestedTuple, KnowledgeTuple, LanguageModel

TUPLE_COLUMNS = {"score": "best_score", "harvests": "n_harvests", "age": "pk"}
MOST_FINDINGS = 200  # harvests that a tuple's page lists


@researcher_required
def tuple_list(request: HttpRequest) -> HttpResponse:
    verdicts = verdicts_known_to(request.user)
    search = KnowledgeSearch(request.GET, verdicts)
    sort = lists.sort_key(request, TUPLE_COLUMNS, "-score")
    narrowed = search.narrowed()
    sign = "-" if sort.startswith("-") else ""
    column = sign + TUPLE_COLUMNS[sort.removeprefix("-")]
    page = keyset_page(narrowed, column, request.GET, lists.ROWS_PER_PAGE)
    context = {
        "search": search,
        "page": page,
        "rows": with_findings(page.rows, verdicts),
        "n": None if narrowed.sought_in is not None else bounded_count(narrowed.tuples),
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
    for known, model, setting in sorted(found):
        cells[known][LanguageModel(name=model).short_name].append(setting)
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
        "tasks": verdicts_known_to(request.user).of([known.pk]).get(known.pk, []),
        "curations": known.curations.select_related("decided_by"),
        "form": form,
    }
    return render(request, "kgharvest/knowledge/tuple_detail.html", context)
