import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


URGENT = [
    "mark_sensitive", "deliver_webhooks", "platform_commands", "pause_panel", "panel_events", "panel_reconciliation",
]  # fmt: skip
WITH_LM = ["harvest", "evaluate_scores", "probe", "judge"]


def give_queues(apps, schema_editor) -> None:
    """Give existing jobs the queue that they would get now: both queued jobs and jobs that are retried."""
    jobs = apps.get_model("kgharvest", "Job").objects
    jobs.filter(kind__in=URGENT).update(queue="urgent")
    jobs.filter(kind__in=WITH_LM, payload__device__startswith="cuda").update(queue="gpu")
    jobs.filter(kind__in=WITH_LM, queue="").update(queue="harvest")
    jobs.filter(queue="").update(queue="light")


class Migration(migrations.Migration):
    """Add the queue, LM, and worker of jobs, and the properties of workers.

    Columns also have database defaults, because programs of the last release continue to run during an update.
    """

    safe_while_the_last_release_runs = "It fills a column of jobs that the last release never reads."

    dependencies = [
        ('kgharvest', '0026_entity_tables'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='lm',
            field=models.TextField(blank=True, db_default='', default='', editable=False),
        ),
        migrations.AddField(
            model_name='job',
            name='queue',
            field=models.CharField(db_default='', default='', editable=False, max_length=10),
        ),
        migrations.AddField(
            model_name='job',
            name='worker',
            field=models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='jobs', to='kgharvest.worker'),
        ),
        migrations.AddField(
            model_name='worker',
            name='devices',
            field=models.JSONField(db_default=[], default=list),
        ),
        migrations.AddField(
            model_name='worker',
            name='host',
            field=models.CharField(db_default='', default='', max_length=200),
        ),
        migrations.AddField(
            model_name='worker',
            name='is_draining',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name='worker',
            name='language_models',
            field=models.JSONField(db_default=[], default=list),
        ),
        migrations.AddField(
            model_name='worker',
            name='left_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='worker',
            name='pid',
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='worker',
            name='queues',
            field=models.JSONField(db_default=[], default=list),
        ),
        migrations.AddField(
            model_name='worker',
            name='started_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='worker',
            name='token',
            field=models.UUIDField(null=True, unique=True),
        ),
        migrations.AddField(
            model_name='worker',
            name='version',
            field=models.CharField(db_default='', default='', max_length=50),
        ),
        migrations.AddIndex(
            model_name='job',
            index=models.Index(condition=models.Q(('status__in', ['queued', 'running'])), fields=['queue', 'id'], name='job_unfinished_of_queue'),
        ),
        migrations.RunPython(give_queues, migrations.RunPython.noop),
    ]
