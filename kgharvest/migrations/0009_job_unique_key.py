"""Allow one unfinished job per harvested cell. If a cell already has several, one of them gets the key of the cell."""

import hashlib
import json

from django.db import migrations, models
from django.db.models import Q

JOBS_AT_ONCE = 500


def name_harvests(apps, schema_editor):
    """Set the keys of harvests. Of unfinished harvests with equal parameters, one gets the key; others have no key."""
    Job = apps.get_model("kgharvest", "Job")
    columns = ("pk", "status", "relation_id", "language_model_id", "setting", "payload")
    harvests = apps.get_model("kgharvest", "HarvestJob").objects.filter(kind="harvest")
    under_way = set()
    named = []
    # Running jobs first: "running" > "queued".
    for pk, status, *question in harvests.order_by("-status", "pk").values_list(*columns).iterator(JOBS_AT_ONCE):
        unique_key = f"harvest:{hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()}"
        if status in ("queued", "running"):
            if unique_key in under_way:
                continue
            under_way.add(unique_key)
        named.append(Job(pk=pk, unique_key=unique_key))
    Job.objects.bulk_update(named, ["unique_key"], batch_size=JOBS_AT_ONCE)


class Migration(migrations.Migration):
    dependencies = [("kgharvest", "0008_job_enqueued_at")]

    operations = [
        migrations.AddField(
            "job",
            "unique_key",
            models.CharField(blank=True, default="", editable=False, max_length=100),
            preserve_default=False,
        ),
        migrations.RunPython(name_harvests, migrations.RunPython.noop, elidable=True),
        migrations.AddConstraint(
            "job",
            models.UniqueConstraint(
                fields=["unique_key"],
                condition=Q(status__in=["queued", "running"]) & ~Q(unique_key=""),
                name="job_unique_while_unfinished",
            ),
        ),
    ]
