"""Link each study to the set of the relations written in its file. The set was found by name before."""

import django.db.models.deletion
from django.db import migrations, models


def link_sets(apps, schema_editor):
    Study, RelationSet = apps.get_model("evaluation", "Study"), apps.get_model("kgharvest", "RelationSet")
    for study in Study.objects.select_related("project"):
        if any("name" in relation for relation in study.document.get("relations", [])):
            sets = RelationSet.objects.filter(project=study.project, study=None)
            names = (study.name, f"{study.project.slug}-{study.name}")
            study.relation_set = next(filter(None, (sets.filter(name=name).first() for name in names)), None)
            study.save(update_fields=["relation_set"])


class Migration(migrations.Migration):
    safe_while_the_last_release_runs = "The last release has neither read nor written the column."

    dependencies = [
        ("evaluation", "0016_study_harvest_keys"),
        ("kgharvest", "0036_plain_english_texts"),
    ]

    operations = [
        migrations.AddField(
            model_name="study",
            name="relation_set",
            field=models.OneToOneField(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="study",
                to="kgharvest.relationset",
            ),
        ),
        migrations.RunPython(link_sets, migrations.RunPython.noop, elidable=True),
    ]
