"""Move the objects of the installation to a project, and give the researchers of the installation a role in it.

The default project is the study of that name if it exists. Otherwise it is created, but only if there is an object or a
researcher for it. Members of the group "researchers" become its researchers, and staff and superusers its owners. The
group is deleted.
"""

from itertools import count

from django.db import migrations
from django.db.models import Q
from django.utils.text import slugify

DEFAULT = "default"
OF_THE_INSTALLATION = ["mark_sensitive"]  # kinds of jobs
GROUP = "researchers"


def name_projects(apps, schema_editor):
    """Give every project a slug: its name, with a number if several names have the same slug."""
    projects = apps.get_model("kgharvest", "Project").objects
    taken = {"new"}
    for project in projects.order_by("pk"):
        stem = slugify(project.name)[:90] or "project"
        slug = next(slug for n in count(1) if (slug := stem if n == 1 else f"{stem}-{n}") not in taken)
        taken.add(slug)
        projects.filter(pk=project.pk).update(slug=slug)


def fill_default_project(apps, schema_editor):
    models = {name: apps.get_model("kgharvest", name).objects for name in ("RelationSet", "Launch", "Job", "Project")}
    homeless = [
        models["RelationSet"].filter(is_shipped=False, project=None),
        models["Launch"].filter(project=None),
        models["Job"].filter(project=None).exclude(kind__in=OF_THE_INSTALLATION),
    ]
    users = apps.get_model("auth", "User").objects.filter(is_active=True)
    researchers = users.filter(groups__name=GROUP)
    if not (any(rows.exists() for rows in homeless) or researchers.exists()):
        return
    project, _ = models["Project"].get_or_create(slug=DEFAULT, defaults={"name": free_name(models["Project"])})
    for rows in homeless:
        rows.update(project=project)
    members = apps.get_model("kgharvest", "ProjectMember").objects
    for role, people in (("owner", users.filter(Q(is_staff=True) | Q(is_superuser=True))), ("researcher", researchers)):
        for user in people:
            members.get_or_create(project=project, user=user, defaults={"role": role})


def free_name(projects) -> str:
    taken = set(projects.values_list("name", flat=True))
    return next(name for n in count(1) if (name := "Default" if n == 1 else f"Default {n}") not in taken)


def remove_group(apps, schema_editor):
    apps.get_model("auth", "Group").objects.filter(name=GROUP).delete()


def restore_group(apps, schema_editor):
    """Add all members of projects to the group, as before projects existed."""
    users = apps.get_model("auth", "User").objects.filter(memberships__isnull=False).distinct()
    if users.exists():
        group, _ = apps.get_model("auth", "Group").objects.get_or_create(name=GROUP)
        group.user_set.set(users)


class Migration(migrations.Migration):
    dependencies = [
        ("kgharvest", "0017_projects"),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        migrations.RunPython(name_projects, migrations.RunPython.noop),
        migrations.RunPython(fill_default_project, migrations.RunPython.noop),
        migrations.RunPython(remove_group, restore_group),
    ]
