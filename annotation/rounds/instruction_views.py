"""The page on which a draft's words about one relation are written."""

from __future__ import annotations

from dataclasses import replace

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from annotation.models import Round
from annotation.rounds.builder import find_relation
from annotation.rounds.draft_views import get_draft
from annotation.rounds.forms import RelationInstructionsForm
from annotation.rounds.freezing import freeze
from annotation.rounds.instructions import instructions_html
from annotation.rounds.services import edit_draft, lock_draft
from annotation.rounds.spec import parse_round_spec
from kgharvest.access import researcher_required
from kgharvest.errors import DomainError
from kgharvest.models import Relation


@researcher_required
def relation_instructions(request: HttpRequest, name: str, pk: int) -> HttpResponse:
    """Show and change what annotators read about a relation. An empty text brings the usual one back."""
    draft = get_draft(request, name)
    try:
        relation, usual = usual_words(draft, pk)
        written = words_by_relation(draft)
    except DomainError as refusal:
        messages.error(request, str(refusal))
        return redirect(draft)
    form = RelationInstructionsForm(request.POST or None, initial={"instructions": written.get(pk, usual)})
    if form.is_valid():
        text = form.cleaned_data["instructions"]
        try:
            keep(draft, relation, "" if text == usual else text, request.user)
        except DomainError as refusal:
            messages.error(request, str(refusal))
            return redirect(draft)
        messages.success(request, f"Annotators will read this about {relation.name}.")
        return redirect("annotation:relation_instructions", name, pk)
    draft.relation_instructions = {str(pk): written.get(pk, usual)}
    context = {
        "round": draft,
        "relation": relation,
        "form": form,
        "is_usual": pk not in written,
        "instructions": instructions_html(draft, relation),
    }
    return render(request, "annotation/rounds/relation_instructions.html", context)


def usual_words(draft: Round, pk: int) -> tuple[Relation, str]:
    """Return a relation of the draft, and what the round says about it if nobody writes anything else."""
    frozen = freeze(draft, replace(parse_round_spec(draft.spec), relation_instructions={}))
    relations = {sample.stratum.relation_id: sample.stratum.relation for sample in frozen.samples}
    if pk not in relations:
        raise Http404("The draft samples no such relation.")
    return relations[pk], frozen.guides[str(pk)]


def words_by_relation(draft: Round) -> dict[int, str]:
    """Return what is written, by the id of a relation. Raises NotFound if one is gone."""
    written = draft.spec.get("relation_instructions", {})
    return {find_relation(name, "relation_instructions").pk: text for name, text in written.items() if text}


def keep(draft: Round, relation: Relation, text: str, by) -> None:
    """Store words about a relation beside those about others, which somebody may be writing now; "" is the usual ones.

    Raises WrongStatus for a round that is open by now, NotFound if a relation is gone.
    """
    with transaction.atomic():
        draft = lock_draft(draft)
        words = words_by_relation(draft) | {relation.pk: text}
        relations = Relation.objects.select_related("relation_set").in_bulk(words)
        named = {relations[pk].path: text for pk, text in words.items() if text}
        edit_draft(draft, draft.spec | {"relation_instructions": named}, by)
