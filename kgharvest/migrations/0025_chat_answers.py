import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """Add responses of chat models to harvests."""

    dependencies = [("kgharvest", "0024_uploaded_kg")]

    operations = [
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
                    ("order", "none: in the order of appearance"),
                ],
            ),
        ),
        migrations.CreateModel(
            name="ChatAnswer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("position", models.PositiveIntegerField()),
                ("question_sha256", models.CharField(max_length=64)),
                ("raw", models.TextField(blank=True)),
                ("model_reported", models.CharField(blank=True, max_length=700)),
                ("n_prompt_tokens", models.PositiveIntegerField(default=0)),
                ("n_completion_tokens", models.PositiveIntegerField(default=0)),
                ("cost", models.DecimalField(decimal_places=8, default=0, max_digits=16)),
                ("seconds", models.FloatField(blank=True, null=True)),
                ("answered_at", models.DateTimeField()),
                (
                    "job",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="chat_answers",
                        to="kgharvest.harvestjob",
                    ),
                ),
            ],
            options={"ordering": ["job", "position"]},
        ),
        migrations.AddConstraint(
            "chatanswer",
            models.UniqueConstraint(
                fields=["job", "position", "question_sha256"], name="chat_answer_job_position_question_unique"
            ),
        ),
    ]
