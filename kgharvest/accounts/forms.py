"""Forms of projects and people: in which project something is made, names, roles, invites, new accounts."""

from __future__ import annotations

from django import forms
from django.contrib.auth.forms import UserCreationForm
from django.http import HttpRequest

from kgharvest.access import MAY, Action
from kgharvest.accounts.projects import LONGEST_NAME, MOST_DAYS
from kgharvest.models import Project, Role

CHOSEN = "project"  # in the session: the slug of the project that somebody last made something in


class ProjectField(forms.ModelChoiceField):
    """The project that something is made in; empty, and not shown, where only one is possible (`project_for`)."""

    def __init__(self, help_text: str = "Its members see it."):
        super().__init__(
            Project.objects.none(), required=False, to_field_name="slug", empty_label=None, help_text=help_text
        )


def offer_projects(form: forms.BaseForm, request: HttpRequest) -> None:
    """Let the field `project` of the form offer those in which the user may work, the last one first."""
    field = form.fields["project"]
    field.queryset = projects = Project.objects.with_role(request.user, MAY[Action.WORK])
    if len(projects[:2]) < 2:
        field.widget = forms.HiddenInput()
        return
    field.initial = request.GET.get("project") or request.session.get(CHOSEN)


def chosen_project(form: forms.BaseForm, request: HttpRequest) -> Project | None:
    """Return what a valid form says, and offer it first the next time; None where only one is possible."""
    project = form.cleaned_data.get("project")
    if project is not None and request.session.get(CHOSEN) != project.slug:
        request.session[CHOSEN] = project.slug
    return project


# -- projects and people -----------------------------------------------------------------------------------------------


class ProjectNameForm(forms.Form):
    name = forms.CharField(max_length=LONGEST_NAME, help_text="As people call it; addresses keep its first name.")


ROLES = {
    Role.OWNER: "Owner: everything, and who is in it",
    Role.RESEARCHER: "Researcher: relations, harvests, rounds, reports",
    Role.ADJUDICATOR: "Adjudicator: looks, and says what is right where annotators differ",
    Role.VIEWER: "Viewer: looks",
}


class RoleForm(forms.Form):
    role = forms.ChoiceField(choices=Role.choices)


class InviteForm(forms.Form):
    role = forms.ChoiceField(
        choices=[(role.value, words) for role, words in ROLES.items()],
        initial=Role.RESEARCHER,
        widget=forms.RadioSelect,
    )
    days = forms.IntegerField(
        label="Good for how many days", min_value=1, max_value=MOST_DAYS, initial=7, help_text="One person, once."
    )


class SignUpForm(UserCreationForm):
    """A new account for whoever was invited; passwords go by the rules of the settings."""
