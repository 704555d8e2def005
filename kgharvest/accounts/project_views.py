"""Project pages: list, members, invitations, and the page that an invitation link opens."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.forms import UserCreationForm
from django.contrib.auth.views import redirect_to_login
from django.db import transaction
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_POST

from kgharvest.access import Action, allowed_actions, check_may, researcher_required, worker_required
from kgharvest.accounts import projects
from kgharvest.accounts.forms import AnnotatorForm, InviteForm, ProjectNameForm, PublishForm, RoleForm
from kgharvest.accounts.sign_in.second_factor import log_in_with_password
from kgharvest.accounts.throttle import check_attempt, count_wrong_link, remember_device
from kgharvest.accounts.tokens import revoke_tokens
from kgharvest.accounts.views import check_local_login, welcome_link
from kgharvest.bulk.pagination import number_in
from kgharvest.errors import NotFound
from kgharvest.models import Project, ProjectInvite, Role
from kgharvest.pages.lists import ListPage
from kgharvest.pages.number_format import counted
from kgharvest.pages.panels import panels_of
from kgharvest.pages.refusals import refusal_as_message, refusal_in_form

MOST_UNUSED = 100  # accounts without a password that a page lists


class ProjectList(ListPage):
    template_name = "kgharvest/accounts/project_list.html"
    project_path = ""

    def rows(self):
        visible = Project.objects.visible_to(self.request.user).order_by().values("pk")
        rows = Project.objects.filter(pk__in=visible).annotate(n_members=Count("members"))
        return rows.order_by("name")  # GROUP BY drops the default ordering

    def context(self, page):
        roles = dict(self.request.user.memberships.values_list("project", "role"))
        return {"rows": [{"project": project, "role": roles.get(project.pk)} for project in page]}


@worker_required
def project_new(request: HttpRequest) -> HttpResponse:
    form = ProjectNameForm(request.POST or None)
    if form.is_valid():
        with refusal_in_form(form, "name"):
            return redirect(projects.create_project(form.cleaned_data["name"], request.user))
    return render(request, "kgharvest/accounts/project_new.html", {"form": form})


@never_cache
@researcher_required
def project_detail(request: HttpRequest, slug: str) -> HttpResponse:
    return show_project(request, find_visible(request, slug))


def find_visible(request: HttpRequest, slug: str, action: Action = Action.VIEW) -> Project:
    """Return a project that the user can see. Raises Http404, or NotAllowed if `action` is not permitted."""
    project = get_object_or_404(Project.objects.visible_to(request.user), slug=slug)
    check_may(request.user, action, project)
    return project


def show_project(request: HttpRequest, project: Project, **context: Any) -> HttpResponse:
    """Render the project page. link: the link of a new invitation, shown only once."""
    may = allowed_actions(request.user, project)
    now = timezone.now()
    if may["manage"]:
        invites = project.invites.select_related("used_by", "created_by")[:50]
        context["invites"] = [{"invite": invite, "status": invite.status(now)} for invite in invites]
        context["tokens"] = project.api_tokens.valid(now).select_related("user")
        context.setdefault("invite_form", InviteForm())
        context.setdefault("name_form", ProjectNameForm(initial={"name": project.name}))
        context.setdefault("publish_form", PublishForm(initial={"published_knowledge": project.published_knowledge}))
    members = project.members.select_related("user")
    context |= {
        "project": project,
        "may": may,
        "members": [
            {"member": member, "form": RoleForm(initial={"role": member.role}, auto_id=f"role-{member.pk}-%s")}
            for member in members
        ],
        "is_member": any(member.user_id == request.user.pk for member in members),
        "roles": Role,
        "contents": panels_of("project", request, project),
    }
    return render(request, "kgharvest/accounts/project.html", context)


@researcher_required
@require_POST
def project_rename(request: HttpRequest, slug: str) -> HttpResponse:
    project = find_visible(request, slug, Action.MANAGE)
    form = ProjectNameForm(request.POST)
    if form.is_valid():
        with refusal_in_form(form, "name"):
            projects.rename_project(project, form.cleaned_data["name"], request.user)
            return redirect(project)
    return show_project(request, project, name_form=form)


@researcher_required
@require_POST
def project_publish(request: HttpRequest, slug: str) -> HttpResponse:
    project = find_visible(request, slug, Action.MANAGE)
    form = PublishForm(request.POST)
    if not form.is_valid():
        return show_project(request, project, publish_form=form)
    projects.publish_knowledge(project, form.cleaned_data["published_knowledge"], request.user)
    messages.success(request, "Published knowledge changed.")
    return redirect(project)


@researcher_required
@require_POST
def member_change(request: HttpRequest, slug: str, pk: int, change: Callable[..., Any]) -> HttpResponse:
    """Call `change` (`projects.set_role` or `projects.hand_over`) for a member."""
    project = find_visible(request, slug, Action.MANAGE)
    user = get_object_or_404(project.members.select_related("user"), pk=pk).user
    form = RoleForm(request.POST)
    arguments = {}
    if change is projects.set_role:
        if not form.is_valid():
            messages.error(request, "Invalid role. Choose a role from the list.")
            return redirect(project)
        arguments = form.cleaned_data
    with refusal_as_message(request):
        change(project, user, by=request.user, **arguments)
    return redirect(project)


@researcher_required
@require_POST
def member_remove(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    """Remove a member. Redirect to the home page if the project is no longer visible to the user."""
    project = find_visible(request, slug)
    user = get_object_or_404(project.members.select_related("user"), pk=pk).user
    if user != request.user:
        check_may(request.user, Action.MANAGE, project)
    with refusal_as_message(request):
        projects.remove_member(project, user, by=request.user)
    is_visible = Project.objects.visible_to(request.user).filter(pk=project.pk).exists()
    return redirect(project if is_visible else "home")


@never_cache
@researcher_required
@sensitive_variables()
def annotator_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Create an account for an annotator, or a new link to the account `renew`. The link is shown only once.

    Query parameter `next`: page to go back to.
    """
    check_local_login()
    project, renewed = find_visible(request, slug, Action.MANAGE), number_in(request.POST.get("renew"))
    form = AnnotatorForm(request.POST or None if renewed is None else None)
    context: dict[str, Any] = {"project": project, "form": form, "has_mail": bool(settings.EMAIL_URL)}
    back = request.GET.get("next")
    if url_has_allowed_host_and_scheme(back, {request.get_host()}, request.is_secure()):
        context["back"] = back
    too_many = "Too many emails about accounts. Create an account without an email address, or wait a day."
    if renewed is not None:
        user = get_object_or_404(projects.annotators_without_password(project), pk=renewed)
        with refusal_as_message(request):
            if user.email:
                check_attempt("account_mails", str(request.user.pk), timezone.now(), too_many)
            user = projects.renew_annotator(project, user, by=request.user)
            context |= {"account": user, "link": welcome_link(request, user)}
    elif form.is_valid():
        with refusal_in_form(form, "username"):
            if form.cleaned_data["email"]:
                check_attempt("account_mails", str(request.user.pk), timezone.now(), too_many)
            user = projects.create_annotator(project, **form.cleaned_data, by=request.user)
            context |= {"account": user, "link": welcome_link(request, user), "form": AnnotatorForm()}
    context["unused"] = projects.annotators_without_password(project).order_by("-pk")[:MOST_UNUSED]
    return render(request, "kgharvest/accounts/annotator_new.html", context)


@never_cache
@researcher_required
@require_POST
@sensitive_variables()
def invite_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Create an invitation link. The link is shown only once, because only its hash is stored."""
    project = find_visible(request, slug, Action.MANAGE)
    form = InviteForm(request.POST)
    if not form.is_valid():
        return show_project(request, project, invite_form=form)
    expires_at = timezone.now() + timedelta(days=form.cleaned_data["days"])
    invite, secret = projects.create_invite(project, form.cleaned_data["role"], expires_at, request.user)
    link = request.build_absolute_uri(reverse("kgharvest:project_join", args=[secret]))
    return show_project(request, project, link=link, new_invite=invite)


@researcher_required
@require_POST
def invite_revoke(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    project = find_visible(request, slug, Action.MANAGE)
    projects.revoke_invite(get_object_or_404(project.invites, pk=pk), timezone.now(), request.user)
    return redirect(project)


@researcher_required
@require_POST
def tokens_revoke(request: HttpRequest, slug: str, pk: int | None = None) -> HttpResponse:
    """Revoke a token that is bound to the project, or all such tokens."""
    project = find_visible(request, slug, Action.MANAGE)
    tokens = project.api_tokens.all()
    if pk is not None:
        tokens = tokens.filter(pk=get_object_or_404(tokens, pk=pk).pk)
    n_revoked = revoke_tokens(tokens, timezone.now(), request.user)
    messages.success(request, f"{counted(n_revoked, 'token')} revoked.")
    return redirect(project)


@never_cache
@sensitive_variables()
@sensitive_post_parameters()
def project_join(request: HttpRequest, secret: str) -> HttpResponse:
    """Join by an invitation link, with the current account or a new account."""
    try:
        invite = projects.find_invite(secret)
    except NotFound as refusal:
        status = 429 if count_wrong_link(request, timezone.now()) else 404
        return render(request, "kgharvest/accounts/project_join.html", {"refusal": refusal}, status=status)
    if request.user.is_authenticated and invite.project.members.filter(user=request.user).exists():
        return redirect(invite.project)
    if invite.status(timezone.now()) != "active":
        return render(request, "kgharvest/accounts/project_join.html", {"refusal": projects.NOT_USABLE}, status=410)
    return _join(request, invite)


@sensitive_variables()
def _join(request: HttpRequest, invite: ProjectInvite) -> HttpResponse:
    needs_account = request.user.is_anonymous
    if needs_account and not settings.LOCAL_LOGIN:
        return redirect_to_login(request.get_full_path())  # log in at the OpenID provider, then return to this link
    form = UserCreationForm(request.POST or None) if needs_account else None
    if request.method == "POST" and (form is None or form.is_valid()):
        try:
            response = redirect(invite.project)
            if form is None:
                projects.accept_invite(invite, request.user, timezone.now())
            else:
                with transaction.atomic():  # create no account if the invitation is not usable
                    user = form.save()
                    projects.accept_invite(invite, user, timezone.now())
                log_in_with_password(request, user, invite.project.get_absolute_url(), timezone.now())
                remember_device(request, response, user)
            return response
        except projects.InviteNotUsable as refusal:
            return render(request, "kgharvest/accounts/project_join.html", {"refusal": refusal}, status=410)
    context = {"invite": invite, "form": form, "is_first": projects.is_first_owners(invite)}
    return render(request, "kgharvest/accounts/project_join.html", context)
