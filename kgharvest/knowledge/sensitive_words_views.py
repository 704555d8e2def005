"""The page of the installation's list of sensitive words."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from kgharvest.access import researcher_required
from kgharvest.bulk.pagination import COUNTED_UP_TO, bounded_count
from kgharvest.errors import DomainError
from kgharvest.harvests.views import lacks_worker
from kgharvest.knowledge.sensitive_words import read_words, replace_words, shipped_words
from kgharvest.models import Job, KnowledgeTuple, SensitiveWord


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
