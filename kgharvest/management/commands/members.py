from datetime import timedelta

from django.conf import settings
from django.core.management.base import CommandError
from django.urls import reverse
from django.utils import timezone

from kgharvest.accounts.projects import (
    create_invite,
    default_project,
    find_project,
    is_without_owner,
    make_superuser,
    remove_member,
    set_role,
)
from kgharvest.errors import NotFound
from kgharvest.management.command import DomainCommand, find_user
from kgharvest.models import Project, Role

INVITE_DAYS = 7


class Command(DomainCommand):
    help = "List, add, remove, or invite members of a project, or change their roles."

    def add_arguments(self, parser):
        parser.add_argument("project", nargs="?", metavar="PROJECT", help="slug or name (default: the only project)")
        actions = parser.add_mutually_exclusive_group()
        actions.add_argument("--add", metavar="NAME", help="add this user or change the user's role; requires --role")
        actions.add_argument("--remove", metavar="NAME", help="remove this user")
        invite_help = f"print an invitation link for a role: {', '.join(Role.values)}"
        actions.add_argument("--invite", choices=Role.values, metavar="ROLE", help=invite_help)
        actions.add_argument("--superuser", metavar="NAME", help="make this user a superuser of the installation")
        owner_help = "if the installation has no owner, print a link that makes a user the owner"
        actions.add_argument("--first-owner", action="store_true", help=owner_help)
        parser.add_argument("--role", choices=Role.values, help="role for --add")

    def handle(self, *, project, add, remove, invite, superuser, first_owner, role, **options):
        if bool(add) != bool(role):
            raise CommandError("--add and --role require each other. Use both.")
        if first_owner:
            if is_without_owner():
                self.stderr.write("This installation has no owner. The first user to open this link becomes the owner:")
                self.print_link(default_project(), Role.OWNER)
            return
        if superuser:
            make_superuser(find_user(superuser))
            return
        project = find_project(project) if project else only_project()
        if invite:
            self.print_link(project, invite)
            return
        if add:
            set_role(project, find_user(add), role)
        if remove:
            remove_member(project, find_user(remove))
        for member in project.members.select_related("user"):
            self.stdout.write(f"{member.user}\t{member.role}")

    def print_link(self, project: Project, role: str) -> None:
        _, secret = create_invite(project, role, timezone.now() + timedelta(days=INVITE_DAYS))
        self.stdout.write(f"{settings.ORIGIN}{reverse('kgharvest:project_join', args=[secret])}")


def only_project() -> Project:
    projects = Project.objects.all()[:2]
    if len(projects) != 1:
        names = ", ".join(Project.objects.values_list("slug", flat=True)[:10]) or "none yet"
        raise NotFound(f"Choose a project. Existing projects: {names}.")
    return projects[0]
