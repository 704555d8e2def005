"""Take the study out of the descriptions of rounds: Round.project says it."""

from django.db import migrations

ROWS_AT_ONCE = 500


def forget_studies(apps, schema_editor):
    rounds = apps.get_model("annotation", "Round").objects.filter(spec__has_key="study").only("spec")
    changed = []
    for round in rounds.iterator(chunk_size=ROWS_AT_ONCE):
        del round.spec["study"]
        changed.append(round)
    apps.get_model("annotation", "Round").objects.bulk_update(changed, ["spec"], batch_size=ROWS_AT_ONCE)


class Migration(migrations.Migration):
    dependencies = [("annotation", "0017_rounds_of_projects")]

    operations = [migrations.RunPython(forget_studies, migrations.RunPython.noop)]
