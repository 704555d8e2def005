from django.conf import settings
from django.db import migrations, models


def assign_projects(apps, schema_editor):
    """Assign decisions on built-in relations to the only project in which their author works.

    Other decisions stay without a project: all rounds use them, and only superusers see them.
    """
    GoldDecision = apps.get_model("annotation", "GoldDecision")
    ProjectMember = apps.get_model("kgharvest", "ProjectMember")
    decisions = GoldDecision.objects.filter(relation__relation_set__is_shipped=True)
    for author in set(decisions.exclude(decided_by=None).values_list("decided_by", flat=True)):
        works_in = ProjectMember.objects.filter(user=author, role__in=["owner", "researcher"])
        projects = list(works_in.values_list("project", flat=True)[:2])
        if len(projects) == 1:
            decisions.filter(decided_by=author).update(project=projects[0])


class Migration(migrations.Migration):
    safe_while_the_last_release_runs = (
        "The last release stores decisions without a project, which stay unique. It reads all decisions, as before."
    )

    dependencies = [
        ("annotation", "0045_reserved_tasks_index"),
        ("kgharvest", "0041_published_knowledge"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint("golddecision", "gold_decision_relation_key_unique"),
        migrations.AddField(
            "golddecision",
            "project",
            models.ForeignKey(
                "kgharvest.project", models.PROTECT, null=True, blank=True, related_name="gold_decisions"
            ),
        ),
        migrations.AddConstraint(
            "golddecision",
            models.UniqueConstraint(
                fields=["relation", "key"],
                condition=models.Q(withdrawn_at=None, project=None),
                name="gold_decision_relation_key_unique",
            ),
        ),
        migrations.AddConstraint(
            "golddecision",
            models.UniqueConstraint(
                fields=["relation", "project", "key"],
                condition=models.Q(withdrawn_at=None),
                name="gold_decision_project_key_unique",
            ),
        ),
        migrations.RunPython(assign_projects, migrations.RunPython.noop),
    ]
