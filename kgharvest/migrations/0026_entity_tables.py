import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Add entity tables, which define when two entities of a set's relations are the same."""

    dependencies = [
        ("kgharvest", "0025_chat_answers"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="EntityTable",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "without_articles",
                    models.BooleanField(
                        "without articles", default=True, help_text="“a dog” and “the dog” are “dog”."
                    ),
                ),
                (
                    "in_singular",
                    models.BooleanField(
                        "in the singular",
                        default=False,
                        help_text="“dogs” are “dog”, by the rules of English: names that end in s may suffer; a label "
                        "keeps them.",
                    ),
                ),
                ("source", models.CharField(blank=True, max_length=255)),
                ("sha256", models.CharField(blank=True, max_length=64)),
                ("n_labels", models.PositiveIntegerField(default=0)),
                ("n_aliases", models.PositiveIntegerField(default=0)),
                ("n_ambiguous", models.PositiveIntegerField(default=0)),
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
                    "relation_set",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="entity_table",
                        to="kgharvest.relationset",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="EntityName",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.TextField()),
                ("label", models.TextField()),
                ("identifier", models.CharField(blank=True, max_length=200)),
                (
                    "table",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="names",
                        to="kgharvest.entitytable",
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            "entityname",
            models.UniqueConstraint(fields=["table", "name"], name="entity_name_table_name_unique"),
        ),
    ]
