from django.db import migrations, models


class Migration(migrations.Migration):
    """Evaluations of scores keep what they scored, so that other systems can score the same."""

    dependencies = [("evaluation", "0012_scores_of_relation")]

    operations = [migrations.AddField("scoreevaluation", "samples", models.JSONField(default=list))]
