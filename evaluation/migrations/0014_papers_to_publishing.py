"""Release three models to the optional app `publishing`; their tables stay as they are."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("evaluation", "0013_score_samples")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.DeleteModel("PaperPack"),
                migrations.DeleteModel("PaperStatement"),
                migrations.DeleteModel("Preregistration"),
            ]
        ),
    ]
