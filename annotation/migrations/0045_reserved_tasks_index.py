from django.db import migrations, models

from kgharvest.bulk.indexes import AddIndex


class Migration(migrations.Migration):
    atomic = False  # statements are judged meanwhile

    dependencies = [("annotation", "0044_reservations")]

    operations = [
        AddIndex(
            model_name="judgmenttask",
            index=models.Index(
                condition=models.Q(
                    n_wanted__gt=models.F("n_judgments") + models.F("n_leased"), reservation__isnull=False
                ),
                fields=["reservation", "position"],
                name="judgment_task_reserved",
            ),
        ),
    ]
