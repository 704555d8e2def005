"""Knowledge base pages: search, tuples and their curation, entities, and sensitive words."""

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.db.models import F
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from kgharvest.access import Action, check_may, researcher_required, visible
from kgharvest.bulk import pagination
from kgharvest.bulk.pagination import COUNTED_UP_TO, apply_filters, bounded_count, keyset_page
from kgharvest.jobs import workers
from kgharvest.knowledge.curation import check_may_curate, may_curate
from kgharvest.knowledge.entity_graph import SHAPES
from kgharvest.knowledge.forms import CurationForm, SensitiveWordsForm
from kgharvest.knowledge.search import (
    SORT_COLUMNS,
    KnowledgeSearch,
    TupleVerdicts,
    best_tuples_of,
    findings_of,
    roles_of,
    verdicts_visible_to,
)
from kgharvest.knowledge.sensitive_words import current_words, default_words, read_words, replace_words
from kgharvest.knowledge.visibility import VisibleTuples
from kgharvest.models import HarvestedTuple, HarvestJob, Job, KnowledgeTuple, Relation
from kgharvest.names import shortest_names
from kgharvest.pages.number_format import counted
from kgharvest.pages.refusals import refusal_in_form


@researcher_required
def tuple_list(request: HttpRequest) -> HttpResponse:
    search = KnowledgeSearch(request.GET, request.user)
    sort = pagination.sort_key(request, SORT_COLUMNS, "-score")
    filtered = search.filtered()
    sign = "-" if sort.startswith("-") else ""
    column = sign + SORT_COLUMNS[sort.removeprefix("-")]
    page = keyset_page(filtered, column, request.GET, pagination.ROWS_PER_PAGE)
    search.visible.count_harvests(page.rows)
    rows = with_findings(page.rows, search.verdicts, request.user)
    context = {
        "search": search,
        "page": page,
        "rows": rows,
        "noisy": list({job.pk: job for row in rows for job in row["noisy"]}.values()),
        "n": None if filtered.scanned is not None else bounded_count(filtered.rows),
        "most": COUNTED_UP_TO,
        "sort": sort,
    }
    return render(request, "kgharvest/knowledge/tuple_list.html", context)


def with_findings(tuples: Sequence[KnowledgeTuple], verdicts: TupleVerdicts, user) -> list[dict[str, Any]]:
    """Return each tuple with its judged tasks, and with its harvests in the user's projects.

    found_by: settings by LM. noisy: harvests that are probably noise.
    """
    ids = [knowledge_tuple.pk for knowledge_tuple in tuples]
    columns = ("knowledge_tuple", "job__language_model__name", "job__setting")
    harvested = visible(HarvestedTuple.objects, user, "job__project")
    findings = harvested.filter(knowledge_tuple__in=ids).order_by().values_list(*columns).distinct()
    models = shortest_names(model for _, model, _ in findings)
    found_by: dict[int, dict[str, list[str]]] = {pk: {} for pk in ids}
    for pk, model, setting in sorted(findings):
        found_by[pk].setdefault(models[model], []).append(setting)
    jobs = HarvestJob.objects.visible_to(user).probably_noise().annotate(found=F("tuples__knowledge_tuple"))
    noisy: dict[int, list[HarvestJob]] = {pk: [] for pk in ids}
    for job in jobs.filter(found__in=ids).order_by("pk"):
        noisy[job.found].append(job)
    tasks = verdicts.of(ids)
    return [
        {"tuple": knowledge_tuple, "found_by": found_by[pk], "noisy": noisy[pk], "tasks": tasks.get(pk, [])}
        for pk, knowledge_tuple in zip(ids, tuples, strict=True)
    ]


@researcher_required
def tuple_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a tuple (GET), or record a curation decision (POST)."""
    tuples = KnowledgeTuple.objects.select_related("relation__relation_set")
    knowledge_tuple = get_object_or_404(VisibleTuples(request.user).look_up(tuples), pk=pk)
    if request.method == "POST":
        check_may_curate(request.user, knowledge_tuple)
    form = CurationForm(knowledge_tuple, request.POST or None)
    if form.is_valid():
        with refusal_in_form(form):
            form.decide(request.user)
            messages.success(request, "Decision saved.")
            return redirect(knowledge_tuple)
    findings = list(findings_of(knowledge_tuple, request.user))
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
    """Show the tuples of the entity `name` by relation and slot."""
    entity = request.GET.get("name", "").strip().casefold()
    if not entity:
        return redirect("kgharvest:tuple_list")
    visible_tuples = VisibleTuples(request.user)
    roles = roles_of(entity, visible_tuples)
    if not roles:
        raise Http404(f"No harvested tuple contains the entity {entity[:80]!r}.")
    tuples = best_tuples_of(entity, visible_tuples)
    rows = with_findings(tuples, verdicts_visible_to(request.user), request.user)
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
    entity = request.GET.get("name", "").strip().casefold()
    draw = SHAPES.get(request.GET.get("shape"), SHAPES["wide"])
    context = {"graph": draw(entity, best_tuples_of(entity, VisibleTuples(request.user)))}
    return render(request, "kgharvest/knowledge/entity_graph.svg", context, content_type="image/svg+xml")


@researcher_required
def sensitive_words(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        check_may(request.user, Action.MANAGE, None)
    old_words = current_words()
    form = SensitiveWordsForm(request.POST or None, initial={"words": "\n".join(old_words)})
    if form.is_valid():
        words = default_words() if "shipped" in request.POST else read_words(form.cleaned_data["words"])
        with refusal_in_form(form, "words"):
            if replace_words(words, request.user):
                text = f"List saved with {counted(len(words), 'entry', 'entries')}. A worker updates the tuples."
            else:
                text = "The list did not change."
            messages.success(request, text)
            return redirect("kgharvest:sensitive_words")
    marked = apply_filters(KnowledgeTuple.objects.filter(is_sensitive=True), VisibleTuples(request.user).filters())
    marking = Job.objects.filter(kind="mark_sensitive").first()
    context = {
        "form": form,
        "may_change": request.user.is_superuser,
        "n_words": len(old_words),
        "n_marked": bounded_count(marked.rows),
        "most": COUNTED_UP_TO,
        "is_default": old_words == default_words(),
        "marking": marking,
        "lacks_worker": marking and workers.lacking_for(marking, timezone.now()),
    }
    return render(request, "kgharvest/knowledge/sensitive_words.html", context)
