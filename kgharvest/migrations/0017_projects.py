"""Add projects and members, with the tables of annotation's studies, and a project column for objects in projects."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

ROLES = ["owner", "researcher", "adjudicator", "viewer"]
CHOICES = [("owner", "Owner"), ("researcher", "Researcher"), ("adjudicator", "Adjudicator"), ("viewer", "Viewer")]


def id_field():
    return models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


def maker(related_name="+"):
    return models.ForeignKey(
        blank=True,
        null=True,
        on_delete=django.db.models.deletion.SET_NULL,
        related_name=related_name,
        to=settings.AUTH_USER_MODEL,
    )


def project_field(related_name):
    return models.ForeignKey(
        blank=True,
        null=True,
        on_delete=django.db.models.deletion.PROTECT,
        related_name=related_name,
        to="kgharvest.project",
    )


class Migration(migrations.Migration):
    dependencies = [
        ("annotation", "0016_studies_to_projects"),
        ("kgharvest", "0016_webhooks"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="Project",
                    fields=[
                        ("id", id_field()),
                        ("name", models.CharField(max_length=100, unique=True)),
                        ("created_at", models.DateTimeField(auto_now_add=True)),
                    ],
                    options={"ordering": ["name"]},
                ),
                migrations.CreateModel(
                    name="ProjectMember",
                    fields=[
                        ("id", id_field()),
                        ("role", models.CharField(choices=CHOICES, max_length=12)),
                        (
                            "study",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="members",
                                to="kgharvest.project",
                            ),
                        ),
                        (
                            "user",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="memberships",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                    ],
                    options={
                        "ordering": ["user__username"],
                        "constraints": [
                            models.UniqueConstraint(fields=["study", "user"], name="study_member_unique"),
                            models.CheckConstraint(
                                condition=models.Q(("role__in", ROLES)), name="study_member_role_known"
                            ),
                        ],
                    },
                ),
            ],
        ),
        migrations.RemoveConstraint(model_name="projectmember", name="study_member_unique"),
        migrations.RemoveConstraint(model_name="projectmember", name="study_member_role_known"),
        migrations.RenameField(model_name="projectmember", old_name="study", new_name="project"),
        migrations.AddConstraint(
            model_name="projectmember",
            constraint=models.UniqueConstraint(fields=("project", "user"), name="project_member_unique"),
        ),
        migrations.AddConstraint(
            model_name="projectmember",
            constraint=models.CheckConstraint(
                condition=models.Q(("role__in", ROLES)), name="project_member_role_known"
            ),
        ),
        migrations.AddField(model_name="project", name="slug", field=models.SlugField(max_length=100, null=True)),
        migrations.CreateModel(
            name="ProjectInvite",
            fields=[
                ("id", id_field()),
                ("role", models.CharField(choices=CHOICES, max_length=12)),
                ("token_hash", models.CharField(max_length=64, unique=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("created_by", maker()),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="invites", to="kgharvest.project"
                    ),
                ),
                ("used_by", maker()),
            ],
            options={
                "ordering": ["-pk"],
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("role__in", ROLES)), name="project_invite_role_known"),
                ],
            },
        ),
        migrations.AddField(model_name="relationset", name="project", field=project_field("relation_sets")),
        migrations.AddField(model_name="launch", name="project", field=project_field("launches")),
        migrations.AddField(model_name="job", name="project", field=project_field("jobs")),
    ]
