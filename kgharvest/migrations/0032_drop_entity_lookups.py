"""Drop the proposals of reconciliation services, cancel pending lookups, and read pending KGTK uploads as TSV."""

from django.db import migrations
from django.utils import timezone


def end_pending_work(apps, schema_editor):
    database = schema_editor.connection.alias
    pending = apps.get_model("kgharvest", "Job").objects.using(database).filter(status__in=["queued", "running"])
    pending.filter(kind="reconcile_entities").update(status="cancelled", finished_at=timezone.now())
    uploads = apps.get_model("kgharvest", "UploadedKG").objects.using(database)
    uploads.filter(file_format="kgtk").update(file_format="tsv")


class Migration(migrations.Migration):
    safe_while_the_last_release_runs = (
        "The last release has no lookups, and it reads TSV uploads; a KGTK upload lasts a day at most."
    )
    dependencies = [("kgharvest", "0031_job_turns")]

    operations = [
        migrations.RunPython(end_pending_work, migrations.RunPython.noop),
        migrations.DeleteModel(name="EntityCandidate"),
    ]
