from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Add score scales for imported KGs, which have their own scores or none."""

    dependencies = [("kgharvest", "0022_drop_axes")]

    operations = [
        migrations.RemoveConstraint("harvestjob", "harvest_job_scale_known"),
        migrations.AlterField(
            "harvestjob",
            "score_scale",
            models.CharField(
                max_length=10,
                default="nats",
                choices=[
                    ("nats", "log-probability (nats)"),
                    ("log_share", "log of the share of its list"),
                    ("own", "the imported file's own score"),
                    ("order", "none: in the order of the file"),
                ],
            ),
        ),
        migrations.AddConstraint(
            "harvestjob",
            models.CheckConstraint(
                condition=Q(score_scale__in=["nats", "log_share", "own", "order"]), name="harvest_job_scale_known"
            ),
        ),
    ]
