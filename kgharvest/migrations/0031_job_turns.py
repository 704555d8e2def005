from django.conf import settings
from django.db import migrations, models

from kgharvest.bulk.indexes import AddIndex


class Migration(migrations.Migration):
    atomic = False  # jobs are claimed meanwhile, and there may be a million rows

    dependencies = [
        ("kgharvest", "0030_loadable_language_models"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("status__in", ["queued", "running"])),
                fields=["queue", "lm", "id"],
                name="job_unfinished_of_lm",
            ),
        ),
        AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("started_at__isnull", False)),
                fields=["queue", "id", "started_at"],
                name="job_begun_of_queue",
            ),
        ),
        AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("project", None)),
                fields=["kind", "finished_at"],
                name="job_ended_of_installation",
            ),
        ),
    ]
