from django.db import migrations, models


def fill_headlines(apps, schema_editor):
    reports = apps.get_model("evaluation", "Report").objects
    for report in reports.iterator(chunk_size=10):
        names = ("n_tasks", "n_complete", "n_judgments")
        report.headline = {name: report.document[name] for name in names} | {"alpha": report.document["alpha"]["value"]}
        report.save(update_fields=["headline"])


class Migration(migrations.Migration):
    dependencies = [("evaluation", "0001_initial")]

    operations = [
        migrations.AddField("report", "headline", models.JSONField(default=dict)),
        migrations.RunPython(fill_headlines, migrations.RunPython.noop),
    ]
