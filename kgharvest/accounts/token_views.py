"""The page of one's own API tokens."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from kgharvest.accounts.tokens import LONGEST_DAYS, NewToken, Scope, create_token, revoke_token
from kgharvest.bulk.pagination import page_of
from kgharvest.errors import DomainError
from kgharvest.models import Project


class TokenForm(forms.Form):
    name = forms.CharField(max_length=100, help_text="What it is for, such as <code>nightly harvest</code>.")
    scope = forms.ChoiceField(choices=Scope.choices, widget=forms.RadioSelect, initial=Scope.READ)
    days = forms.IntegerField(
        label="Valid for", min_value=1, max_value=LONGEST_DAYS, initial=90, help_text=f"Days, at most {LONGEST_DAYS}."
    )
    project = forms.ModelChoiceField(
        Project.objects.none(), required=False, empty_label="all of yours", help_text="The only one that it reaches."
    )

    def __init__(self, user, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        projects = Project.objects.visible_to(user)
        self.fields["project"].queryset = projects
        if not projects.exists():
            del self.fields["project"]


@login_required
def token_list(request: HttpRequest) -> HttpResponse:
    """The tokens, and the form that makes one; the new one is shown in the answer to the form and never again."""
    form = TokenForm(request.user, request.POST or None)
    new: NewToken | None = None
    if form.is_valid():
        try:
            new = create_token(request.user, **form.cleaned_data, now=timezone.now())
        except DomainError as refusal:
            form.add_error(None, str(refusal))
        else:
            form = TokenForm(request.user)
    now = timezone.now()
    tokens = page_of(request, request.user.api_tokens.select_related("project"))
    context = {"form": form, "new": new, "page_obj": tokens, "now": now}
    return render(request, "kgharvest/accounts/token_list.html", context)


@login_required
@require_POST
def token_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    token = get_object_or_404(request.user.api_tokens, pk=pk)
    revoke_token(token, timezone.now())
    messages.success(request, f"The token {token.name} is revoked; it opens nothing any more.")
    return redirect("kgharvest:token_list")
