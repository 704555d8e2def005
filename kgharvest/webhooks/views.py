"""Pages of a project's webhooks, for project owners."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_POST

from kgharvest.access import Action, researcher_required
from kgharvest.accounts.models import Project
from kgharvest.accounts.project_views import find_visible
from kgharvest.bulk.pagination import ROWS_PER_PAGE, Filtered, keyset_page
from kgharvest.events.types import TOPICS
from kgharvest.models import Delivery, Webhook
from kgharvest.pages.refusals import refusal_as_message, refusal_in_form
from kgharvest.webhooks import outbox
from kgharvest.webhooks.addresses import LONGEST_URL

CHOICES = [(name, f"{name}: {text[0].lower()}{text[1:]}") for name, text in TOPICS.items()]


class WebhookForm(forms.Form):
    url = forms.CharField(
        label="URL",
        max_length=LONGEST_URL,
        widget=forms.URLInput({"placeholder": "https://lab.example.org/hooks/kgharvest"}),
        help_text="Public https URL that receives events by POST.",
    )
    events = forms.MultipleChoiceField(choices=CHOICES, widget=forms.CheckboxSelectMultiple)


@never_cache
@researcher_required
@sensitive_variables()
def webhook_list(request: HttpRequest, slug: str) -> HttpResponse:
    """List and create webhooks. The response to the form shows the new secret."""
    project = find_visible(request, slug, Action.MANAGE)
    form = WebhookForm(request.POST or None, initial={"events": list(TOPICS)})
    new: Webhook | None = None
    if form.is_valid():
        with refusal_in_form(form):
            new = outbox.create_webhook(project.pk, by=request.user, **form.cleaned_data)
            form = WebhookForm(initial={"events": list(TOPICS)})
    webhooks = Webhook.objects.filter(project_id=project.pk)
    context = {"project": project, "form": form, "new": new, "webhooks": webhooks}
    return render(request, "kgharvest/webhooks/webhook_list.html", context)


@never_cache
@researcher_required
def webhook_detail(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Show a webhook with its delivery log, or change its settings."""
    project, webhook = _find(request, slug, pk)
    form = WebhookForm(request.POST or None, initial={"url": webhook.url, "events": webhook.events})
    if form.is_valid():
        with refusal_in_form(form):
            outbox.edit_webhook(webhook, by=request.user, **form.cleaned_data)
            messages.success(request, "Webhook saved.")
            return redirect("kgharvest:webhook", slug, pk)
    return _show(request, project, webhook, form)


def _show(request: HttpRequest, project: Project, webhook: Webhook, form: WebhookForm, **context: Any) -> HttpResponse:
    page = keyset_page(Filtered(webhook.deliveries.defer("body")), "-id", request.GET, ROWS_PER_PAGE)
    context |= {"project": project, "webhook": webhook, "form": form, "page": page, "now": timezone.now()}
    return render(request, "kgharvest/webhooks/webhook.html", context)


@researcher_required
@require_POST
def webhook_change(request: HttpRequest, slug: str, pk: int, change: Callable[..., Any], done: str) -> HttpResponse:
    """Call `change` of the outbox services with a webhook. done: success message."""
    _, webhook = _find(request, slug, pk)
    with refusal_as_message(request):
        change(webhook, by=request.user)
        messages.success(request, done)
    return redirect("kgharvest:webhook", slug, pk)


@never_cache
@researcher_required
@require_POST
@sensitive_variables()
def webhook_rotate(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Rotate the secret. The response shows the new secret."""
    project, webhook = _find(request, slug, pk)
    webhook = outbox.rotate_secret(webhook, request.user)
    form = WebhookForm(initial={"url": webhook.url, "events": webhook.events})
    return _show(request, project, webhook, form, new=webhook)


@researcher_required
@require_POST
def webhook_delete(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    _, webhook = _find(request, slug, pk)
    outbox.delete_webhook(webhook, request.user)
    messages.success(request, f"Webhook for {webhook.url} deleted.")
    return redirect("kgharvest:webhook_list", slug)


@researcher_required
@require_POST
def delivery_send_again(request: HttpRequest, slug: str, pk: int, delivery: int) -> HttpResponse:
    _, webhook = _find(request, slug, pk)
    pending: Delivery = get_object_or_404(webhook.deliveries.select_related("webhook"), pk=delivery)
    with refusal_as_message(request):
        outbox.send_again(pending, request.user)
        messages.success(request, "The delivery is retried within seconds.")
    return redirect("kgharvest:webhook", slug, pk)


def _find(request: HttpRequest, slug: str, pk: int) -> tuple[Project, Webhook]:
    project = find_visible(request, slug, Action.MANAGE)
    return project, get_object_or_404(Webhook, project_id=project.pk, pk=pk)
