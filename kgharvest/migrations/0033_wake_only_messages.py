from django.db import migrations, models
from django.db.models.functions import Now

from kgharvest.bulk.indexes import AddIndex, RemoveIndex


class Migration(migrations.Migration):
    """Messages name no job, so nothing records when one was sent.

    The column stays in the database for web servers and workers of the last release; the next release drops it.
    """

    atomic = False  # jobs are claimed meanwhile

    dependencies = [("kgharvest", "0032_drop_entity_lookups")]

    operations = [
        AddIndex(
            model_name="job",
            index=models.Index(fields=["status", "lease_expires_at"], name="job_status_lease_expires_at"),
        ),
        RemoveIndex(model_name="job", name="job_status_enqueued_at"),
        migrations.AlterField(
            model_name="job", name="enqueued_at", field=models.DateTimeField(db_default=Now())
        ),
        migrations.SeparateDatabaseAndState(
            state_operations=[migrations.RemoveField(model_name="job", name="enqueued_at")]
        ),
    ]
