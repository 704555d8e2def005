"""Pages of the knowledge base: search, one tuple and its curation, one entity, sensitive words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from kgharvest.access import Action, check_may, researcher_required, visible
from kgharvest.bulk import pagination
from kgharvest.bulk.pagination import COUNTED_UP_TO, bounded_count, keyset_page
from kgharvest.jobs import workers
from kgharvest.knowledge.curation import check_may_curate, may_curate
from kgharvest.knowledge.entity_graph import SHAPES
from kgharvest.knowledge.forms import CurationForm, SensitiveWordsForm
from kgharvest.knowledge.search import KnowledgeSearch, TupleVerdicts, best_tuples_of, roles_of, verdicts_known_to
from kgharvest.knowledge.sensitive_words import read_words, replace_words, shipped_words
from kgharvest.models import HarvestedTuple, HarvestJob, Job, KnowledgeTuple, Relation, SensitiveWord
from kgharvest.names import shortest_names
from kgharvest.pages.refusals import refusal_in_form

TUPLE_COLUMNS = {"score": "best_score", "harvests": "n_harvests", "age": "pk"}
MOST_FINDINGS = 200  # harvests that a tuple's page lists


@researcher_required
def tuple_list(request: HttpRequest) -> HttpResponse:
    verdicts = verdicts_known_to(request.user)
    search = KnowledgeSearch(request.GET, verdicts, HarvestJob.objects.visible_to(request.user))
    sort = pagination.sort_key(request, TUPLE_COLUMNS, "-score")
    filtered = search.filtered()
    sign = "-" if sort.startswith("-") else ""
    column = sign + TUPLE_COLUMNS[sort.removeprefix("-")]
    page = keyset_page(filtered, column, request.GET, pagination.ROWS_PER_PAGE)
    context = {
        "search": search,
        "page": page,
        "rows": with_findings(page.rows, verdicts, request.user),
        "n": None if filtered.scanned is not None else bounded_count(filtered.rows),
        "most": COUNTED_UP_TO,
        "sort": sort,
    }
    return render(request, "kgharvest/knowledge/tuple_list.html", context)


def with_findings(tuples: Sequence[KnowledgeTuple], verdicts: TupleVerdicts, user) -> list[dict[str, Any]]:
    """Return each tuple with the cells of the user's projects that found it, settings by LM, and its judged tasks."""
    ids = [knowledge_tuple.pk for knowledge_tuple in tuples]
    columns = ("knowledge_tuple", "job__language_model__name", "job__setting")
    harvested = visible(HarvestedTuple.objects, user, "job__project")
    findings = harvested.filter(knowledge_tuple__in=ids).order_by().values_list(*columns).distinct()
    models = shortest_names(model for _, model, _ in findings)
    found_by: dict[int, dict[str, list[str]]] = {pk: {} for pk in ids}
    for pk, model, setting in sorted(findings):
        found_by[pk].setdefault(models[model], []).append(setting)
    tasks = verdicts.of(ids)
    return [
        {"tuple": knowledge_tuple, "found_by": found_by[pk], "tasks": tasks.get(pk, [])}
        for pk, knowledge_tuple in zip(ids, tuples, strict=True)
    ]


@researcher_required
def tuple_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """The tuple's page; its form records a decision about it."""
    knowledge_tuple = get_object_or_404(KnowledgeTuple.objects.select_related("relation__relation_set"), pk=pk)
    if request.method == "POST":
        check_may_curate(request.user, knowledge_tuple)
    form = CurationForm(knowledge_tuple, request.POST or None)
    if form.is_valid():
        with refusal_in_form(form):
            form.decide(request.user)
            messages.success(request, "The decision is recorded.")
            return redirect(knowledge_tuple)
    harvested = visible(knowledge_tuple.harvested_tuples, request.user, "job__project")
    harvested = harvested.select_related("job__language_model")
    findings = list(harvested.defer("job__payload", "job__summary").order_by("-score", "pk")[:MOST_FINDINGS])
    context = {
        "knowledge_tuple": knowledge_tuple,
        "findings": findings,
        "surface": findings[0].surface if findings else knowledge_tuple.entities,
        "curations": knowledge_tuple.curations.select_related("decided_by"),
        "form": form if may_curate(request.user, knowledge_tuple) else None,
        "sees_relation": Relation.objects.visible_to(request.user).filter(pk=knowledge_tuple.relation_id).exists(),
    }
    return render(request, "kgharvest/knowledge/tuple_detail.html", context)


@researcher_required
def entity_detail(request: HttpRequest) -> HttpResponse:
    """Everything that the entity "name" takes part in, by relation and slot."""
    entity = _entity_name(request)
    if not entity:
        return redirect("kgharvest:tuple_list")
    roles = roles_of(entity)
    if not roles:
        raise Http404(f"No harvest found a tuple with the entity {entity[:80]!r}.")
    tuples = best_tuples_of(entity)
    rows = with_findings(tuples, verdicts_known_to(request.user), request.user)
    for role in roles:
        relation, slot = role["relation"], role["slot"]
        role["entities"] = [entity if number == slot else "…" for number in range(relation.arity)]
        role["rows"] = [
            row for row in rows if row["tuple"].relation_id == relation.pk and row["tuple"].entities[slot] == entity
        ]
    context = {
        "entity": entity,
        "roles": roles,
        "n": sum(role["n"] for role in roles),
        "n_shown": len(tuples),
        "graphs": {shape: draw(entity, tuples) for shape, draw in SHAPES.items()},
    }
    return render(request, "kgharvest/knowledge/entity_detail.html", context)


@researcher_required
def entity_graph(request: HttpRequest) -> HttpResponse:
    entity = _entity_name(request)
    draw = SHAPES.get(request.GET.get("shape"), SHAPES["wide"])
    context = {"graph": draw(entity, best_tuples_of(entity))}
    return render(request, "kgharvest/knowledge/entity_graph.svg", context, content_type="image/svg+xml")


def _entity_name(request: HttpRequest) -> str:
    return request.GET.get("name", "").strip().casefold()


@researcher_required
def sensitive_words(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        check_may(request.user, Action.MANAGE, None)
    listed = list(SensitiveWord.objects.values_list("word", flat=True))
    form = SensitiveWordsForm(request.POST or None, initial={"words": "\n".join(listed)})
    if form.is_valid():
        words = shipped_words() if "shipped" in request.POST else read_words(form.cleaned_data["words"])
        with refusal_in_form(form, "words"):
            job = replace_words(words, request.user)
            if job:
                messages.success(request, f"The list has {len(words)} entries now; a worker marks the tuples by it.")
            else:
                messages.success(request, "The list is the same as before; nothing was changed.")
            return redirect("kgharvest:sensitive_words")
    marking = Job.objects.filter(kind="mark_sensitive").first()
    context = {
        "form": form,
        "may_change": request.user.is_superuser,
        "n_words": len(listed),
        "n_marked": bounded_count(KnowledgeTuple.objects.filter(is_sensitive=True)),
        "most": COUNTED_UP_TO,
        "is_shipped": listed == shipped_words(),
        "marking": marking,
        "lacks_worker": marking and workers.lacking_for(marking, timezone.now()),
    }
    return render(request, "kgharvest/knowledge/sensitive_words.html", context)
