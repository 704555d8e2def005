"""Forms for projects, members, and invitations, and the project field of other forms."""

from django import forms
from django.http import HttpRequest

from kgharvest.access import MAY, Action
from kgharvest.accounts.projects import LONGEST_NAME, MOST_DAYS
from kgharvest.models import Project, Role

LAST_PROJECT = "project"  # session key: slug of the project chosen last


class ProjectField(forms.ModelChoiceField):
    """The project of a new object; hidden and empty if the user can work in only one project (`project_for`)."""

    def __init__(self, help_text: str = "Members of this project can see the result."):
        super().__init__(
            Project.objects.none(), required=False, to_field_name="slug", empty_label=None, help_text=help_text
        )


def offer_projects(form: forms.BaseForm, request: HttpRequest) -> None:
    """Fill the field `project` with the projects in which the user may work. Preselect the project chosen last."""
    field = form.fields["project"]
    field.queryset = projects = Project.objects.with_role(request.user, MAY[Action.WORK])
    if len(projects[:2]) < 2:
        field.widget = forms.HiddenInput()
        return
    field.initial = request.GET.get("project") or request.session.get(LAST_PROJECT)


def chosen_project(form: forms.BaseForm, request: HttpRequest) -> Project | None:
    """Return the project of a valid form and remember it. Return None if the user can work in only one project."""
    project = form.cleaned_data.get("project")
    if project is not None and request.session.get(LAST_PROJECT) != project.slug:
        request.session[LAST_PROJECT] = project.slug
    return project


class ProjectNameForm(forms.Form):
    name = forms.CharField(max_length=LONGEST_NAME, help_text="Project name. URLs keep the original name.")


class PublishForm(forms.Form):
    published_knowledge = forms.ChoiceField(
        label="Published knowledge",
        choices=Project.Published.choices,
        help_text="Tuples that researchers of other projects can also see, without the harvests and judgments.",
    )


ROLES = {
    Role.OWNER: "Owner: full access, including members and invitations",
    Role.RESEARCHER: "Researcher: create and edit relations, harvests, rounds, and reports",
    Role.ADJUDICATOR: "Adjudicator: view everything and decide statements on which annotators disagree",
    Role.VIEWER: "Viewer: view everything",
}


class RoleForm(forms.Form):
    role = forms.ChoiceField(choices=Role.choices)


class AnnotatorForm(forms.Form):
    username = forms.CharField(max_length=150, help_text="Name for logging in, for example ada.")
    email = forms.EmailField(required=False, help_text="The link is also sent to this address if email is configured.")


class InviteForm(forms.Form):
    role = forms.ChoiceField(
        choices=[(role.value, label) for role, label in ROLES.items()],
        initial=Role.RESEARCHER,
        widget=forms.RadioSelect,
    )
    days = forms.IntegerField(
        label="Valid for",
        min_value=1,
        max_value=MOST_DAYS,
        initial=7,
        help_text=f"Days, at most {MOST_DAYS}.",
    )
