"""Require the project of objects in projects, and unique slugs, now that every row is filled in."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("kgharvest", "0018_default_project")]

    operations = [
        migrations.RemoveConstraint(model_name="job", name="job_unique_while_unfinished"),
        migrations.AlterField(
            model_name="launch",
            name="project",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="launches", to="kgharvest.project"
            ),
        ),
        migrations.AlterField(
            model_name="project", name="slug", field=models.SlugField(max_length=100, unique=True)
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.UniqueConstraint(
                condition=models.Q(("status__in", ["queued", "running"]), models.Q(("unique_key", ""), _negated=True)),
                fields=("project", "unique_key"),
                name="job_unique_in_project_while_unfinished",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.UniqueConstraint(
                condition=models.Q(
                    ("project", None),
                    ("status__in", ["queued", "running"]),
                    models.Q(("unique_key", ""), _negated=True),
                ),
                fields=("unique_key",),
                name="job_unique_while_unfinished",
            ),
        ),
        migrations.AddConstraint(
            model_name="relationset",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("is_shipped", True), ("project", None)),
                    models.Q(("is_shipped", False), ("project__isnull", False)),
                    _connector="OR",
                ),
                name="relation_set_of_a_project_or_shipped",
            ),
        ),
    ]
