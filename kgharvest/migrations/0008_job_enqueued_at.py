from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("kgharvest", "0007_worker_processes")]

    operations = [
        migrations.RemoveIndex("job", "job_status_rung_at"),
        migrations.RenameField("job", "rung_at", "enqueued_at"),
        migrations.AddIndex("job", models.Index(fields=["status", "enqueued_at"], name="job_status_enqueued_at")),
    ]
