"""Hand the probes' tables over to the app `probing` (probing 0001): they are renamed, no row is touched."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("evaluation", "0006_probe_vocabulary"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.AlterModelTable("probe", "probing_probe"),
                migrations.AlterModelTable("probedrelation", "probing_probedrelation"),
                migrations.AlterModelTable("proberecord", "probing_proberecord"),
                migrations.AlterModelTable("learnedprompt", "probing_learnedprompt"),
            ],
            state_operations=[
                migrations.DeleteModel("LearnedPrompt"),
                migrations.DeleteModel("ProbeRecord"),
                migrations.DeleteModel("ProbedRelation"),
                migrations.DeleteModel("Probe"),
            ],
        ),
    ]
