"""Pages for researchers to confirm false statements as gold."""

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

from annotation.gold import candidates
from annotation.models import GoldDecision
from annotation.rounds.instructions import freeze_statement, statement_parts
from kgharvest.access import researcher_required, visible_or_404
from kgharvest.models import Relation
from kgharvest.pages.lists import ListPage
from kgharvest.pages.number_format import counted
from kgharvest.pages.refusals import refusal_as_message

CANDIDATES_PER_PAGE = 10
DECISIONS = {"false": True, "unsure": False}


class GoldList(ListPage):
    template_name = "annotation/gold/gold_list.html"
    searched = ("name", "relation_set__name")
    project_path = ""

    def rows(self):
        relations = Relation.objects.visible_to(self.request.user).filter(jobs__n_tuples__gt=0)
        decisions = GoldDecision.objects.visible_to(self.request.user).in_force().filter(is_confirmed=True)
        is_confirmed = Q(gold_decisions__in=decisions.order_by().values("pk"))
        n_false = Count("gold_decisions", filter=is_confirmed, distinct=True)
        relations = relations.select_related("relation_set").distinct().annotate(n_false=n_false)
        return relations.order_by("relation_set__name", "name")


@researcher_required
def gold_of_relation(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one page of candidate statements (`?page=` selects the page) and store the decisions on them."""
    relation = find_relation(request, pk)
    projects, slug = candidates.deciding_projects(relation, request.user), request.GET.get("project")
    project = get_object_or_404(projects, slug=slug) if slug else projects.first()
    if request.method == "POST":
        decisions = {code: DECISIONS[choice] for code, choice in request.POST.items() if choice in DECISIONS}
        n = candidates.decide_on_gold(relation, decisions, request.user, project)
        messages.success(request, f"{counted(n, 'decision')} stored.")
        return redirect(f"{request.path}?project={slug}" if slug else request.path)
    pending = candidates.gold_candidates(relation, request.user, project)
    page = Paginator(pending, CANDIDATES_PER_PAGE).get_page(request.GET.get("page"))
    decided = relation.gold_decisions.visible_to(request.user).order_by("-pk")
    decided = decided.select_related("decided_by", "withdrawn_by", "relation__relation_set__project", "project")
    context = {
        "relation": relation,
        "project": project,
        "projects": projects,
        "page_obj": page,
        "may_decide": candidates.may_decide(relation, request.user),
        "candidates": [
            {
                "code": candidate.code,
                "parts": parts(relation, candidate.entities),
                "replaced": candidate.seed[candidate.slot],
                "replacement": candidate.entities[candidate.slot],
            }
            for candidate in page
        ],
        "decided": [
            {
                "decision": decision,
                "parts": parts(relation, decision.entities),
                "can_withdraw": decision.withdrawn_at is None and candidates.may_withdraw(decision, request.user),
            }
            for decision in decided
        ],
        "n_confirmed": sum(decision.is_confirmed and decision.withdrawn_at is None for decision in decided),
        "seeds": [parts(relation, seed) for seed in relation.seed_tuples],
    }
    return render(request, "annotation/gold/gold.html", context)


def find_relation(request: HttpRequest, pk: int) -> Relation:
    return visible_or_404(request.user, Relation.objects.select_related("relation_set__project"), pk=pk)


def parts(relation: Relation, entities: list[str]) -> list[tuple[str, bool]]:
    return statement_parts(*freeze_statement(relation.statement, entities))


@researcher_required
@require_POST
def gold_withdraw(request: HttpRequest, pk: int, decision: int) -> HttpResponse:
    relation = find_relation(request, pk)
    decisions = GoldDecision.objects.visible_to(request.user)
    decisions = decisions.select_related("project", "relation__relation_set__project")
    withdrawn = get_object_or_404(decisions, relation=relation, pk=decision)
    candidates.check_may_withdraw(withdrawn, request.user)
    with refusal_as_message(request):
        candidates.withdraw_gold(withdrawn, request.POST.get("reason", ""), request.user)
    return redirect("annotation:gold", pk)
