"""Pages of the audit logs.

Owners of a project can read the project's log, and superusers the log of the installation.
"""

from django import forms
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from kgharvest.access import Action, researcher_required
from kgharvest.accounts.models import Project
from kgharvest.accounts.project_views import find_visible
from kgharvest.audit.heads import VERIFY
from kgharvest.bulk.pagination import ROWS_PER_PAGE, Filtered, keyset_page
from kgharvest.events.chain import head
from kgharvest.events.models import LONGEST_NAME, SYSTEM, Actor, Event
from kgharvest.events.types import event_types
from kgharvest.models import Job


class TrailFilters(forms.Form):
    action = forms.ChoiceField(
        required=False, choices=[("", "all"), *((name, name.replace("_", " ")) for name in event_types())]
    )
    who = forms.CharField(
        required=False, max_length=LONGEST_NAME, strip=True, help_text="Username, account code, or system."
    )
    since = forms.DateField(required=False, widget=forms.DateInput({"type": "date"}))
    until = forms.DateField(required=False, widget=forms.DateInput({"type": "date"}))


@researcher_required
def project_trail(request: HttpRequest, slug: str) -> HttpResponse:
    project = find_visible(request, slug, Action.MANAGE)
    return _show(request, Event.objects.filter(project_id=project.pk), project)


@researcher_required
def whole_trail(request: HttpRequest) -> HttpResponse:
    if not request.user.is_superuser:
        raise PermissionDenied(
            "The audit log of the installation is for superusers. Each project has its own audit log."
        )
    return _show(request, Event.objects.all(), None)


def _show(request: HttpRequest, entries: QuerySet[Event], project: Project | None) -> HttpResponse:
    filters = TrailFilters(request.GET)
    filters.is_valid()
    audited = entries.narrowed(**filters.cleaned_data).audited()
    page = keyset_page(Filtered(audited), "-pk", request.GET, ROWS_PER_PAGE)
    facts = {entry.pk: entry.known_facts for entry in page.rows}
    people = [person for values in facts.values() if (person := values.get("person"))]
    accounts = Actor.objects.filter(code__in={*people, *(entry.actor for entry in page.rows)}, user__isnull=False)
    names = dict(accounts.values_list("code", "user__username"))
    rows = []
    for entry in page.rows:
        sentence, person = entry.sentence, facts[entry.pk].get("person", "")
        if person in names:
            sentence = sentence.replace(person, names[person])
        rows.append({"entry": entry, "who": names.get(entry.actor, entry.actor or SYSTEM), "sentence": sentence})
    verifications = Job.objects.filter(kind=VERIFY, project=None).exclude(finished_at=None).order_by("finished_at")
    context = {
        "project": project,
        "filters": filters,
        "is_filtered": any(filters.cleaned_data.values()),
        "page": page,
        "rows": rows,
        "head": head(),
        "verified": verifications.filter(status=Job.Status.SUCCEEDED).last(),
        "verification": verifications.last(),
    }
    return render(request, "kgharvest/audit/trail.html", context)
