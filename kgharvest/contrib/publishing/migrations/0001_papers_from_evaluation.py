"""Preregistrations, statements and packs; the app `evaluation` released their tables in its migration 0014."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

MODELS = ("paperpack", "paperstatement", "preregistration")


def move_content_types(apps, schema_editor, old_app, new_app):
    """Keep the ids of the content types, so that their permissions and log entries remain."""
    types = apps.get_model("contenttypes", "ContentType").objects.using(schema_editor.connection.alias)
    for model in MODELS:
        if not types.filter(app_label=new_app, model=model).exists():
            types.filter(app_label=old_app, model=model).update(app_label=new_app)


def to_this_app(apps, schema_editor):
    move_content_types(apps, schema_editor, "evaluation", "publishing")


def to_evaluation(apps, schema_editor):
    move_content_types(apps, schema_editor, "publishing", "evaluation")


class Migration(migrations.Migration):
    initial = True
    safe_while_the_last_release_runs = "The last release reads no content type of these models."
    dependencies = [
        ("contenttypes", "0002_remove_content_type_name"),
        ("annotation", "0025_round_closes_at_a_half_width"),
        ("evaluation", "0014_papers_to_publishing"),
        ("kgharvest", "0023_scales_of_outside_kgs"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="Preregistration",
                    fields=[
                        ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                        ("version", models.PositiveSmallIntegerField()),
                        ("document", models.JSONField()),
                        ("sha256", models.CharField(max_length=64)),
                        ("frozen_at", models.DateTimeField()),
                        (
                            "created_by",
                            models.ForeignKey(
                                blank=True,
                                null=True,
                                on_delete=django.db.models.deletion.SET_NULL,
                                related_name="+",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                        (
                            "round",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="preregistrations",
                                to="annotation.round",
                            ),
                        ),
                    ],
                    options={
                        "db_table": "evaluation_preregistration",
                        "ordering": ["-version"],
                        "constraints": [
                            models.UniqueConstraint(
                                fields=("round", "version"), name="preregistration_round_version_unique"
                            ),
                            models.CheckConstraint(
                                condition=models.Q(("version__gte", 1)), name="preregistration_version_positive"
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="PaperStatement",
                    fields=[
                        ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                        ("key", models.SlugField()),
                        ("text", models.TextField()),
                        ("changed_at", models.DateTimeField(auto_now=True)),
                        (
                            "changed_by",
                            models.ForeignKey(
                                blank=True,
                                null=True,
                                on_delete=django.db.models.deletion.SET_NULL,
                                related_name="+",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                        (
                            "round",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="paper_statements",
                                to="annotation.round",
                            ),
                        ),
                    ],
                    options={
                        "db_table": "evaluation_paperstatement",
                        "ordering": ["round", "key"],
                        "constraints": [
                            models.UniqueConstraint(fields=("round", "key"), name="paper_statement_round_key_unique"),
                            models.CheckConstraint(
                                condition=models.Q(("text", ""), _negated=True), name="paper_statement_says_something"
                            ),
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="PaperPack",
                    fields=[
                        (
                            "job_ptr",
                            models.OneToOneField(
                                auto_created=True,
                                on_delete=django.db.models.deletion.CASCADE,
                                parent_link=True,
                                primary_key=True,
                                serialize=False,
                                to="kgharvest.job",
                            ),
                        ),
                        ("sha256", models.CharField(blank=True, max_length=64)),
                        ("n_bytes", models.PositiveBigIntegerField(default=0)),
                        (
                            "report",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="packs", to="evaluation.report"
                            ),
                        ),
                    ],
                    options={"db_table": "evaluation_paperpack"},
                    bases=("kgharvest.job",),
                ),
            ]
        ),
        migrations.RunPython(to_this_app, to_evaluation),
    ]
