"""The model UploadedKG; its table and content type came from the app `kgharvest`, which released it in migration 0034."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


def move_content_type(apps, schema_editor, old_app, new_app):
    """Keep the content type's id, so that its permissions and log entries remain."""
    types = apps.get_model("contenttypes", "ContentType").objects.using(schema_editor.connection.alias)
    if not types.filter(app_label=new_app, model="uploadedkg").exists():
        types.filter(app_label=old_app, model="uploadedkg").update(app_label=new_app)


def to_this_app(apps, schema_editor):
    move_content_type(apps, schema_editor, "kgharvest", "knowledge_graphs")


def to_kgharvest(apps, schema_editor):
    move_content_type(apps, schema_editor, "knowledge_graphs", "kgharvest")


class Migration(migrations.Migration):
    initial = True
    safe_while_the_last_release_runs = "The last release reads no content type of uploads."
    dependencies = [
        ("contenttypes", "0002_remove_content_type_name"),
        ("kgharvest", "0034_uploads_to_knowledge_graphs"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.CreateModel(
                    name="UploadedKG",
                    fields=[
                        ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                        ("uploaded_at", models.DateTimeField()),
                        ("system", models.CharField(max_length=500)),
                        ("file_name", models.CharField(max_length=255)),
                        ("file_format", models.CharField(max_length=10)),
                        ("content", models.BinaryField()),
                        ("labels", models.BinaryField(null=True)),
                        (
                            "project",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="kgharvest.project"
                            ),
                        ),
                        (
                            "uploaded_by",
                            models.ForeignKey(
                                on_delete=django.db.models.deletion.CASCADE,
                                related_name="+",
                                to=settings.AUTH_USER_MODEL,
                            ),
                        ),
                    ],
                    options={"db_table": "kgharvest_uploadedkg"},
                ),
            ]
        ),
        migrations.RunPython(to_this_app, to_kgharvest),
    ]
