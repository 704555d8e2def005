from django.db import migrations


def give_makers(apps, schema_editor):
    """A set belongs to whoever alone has launched harvests of it; others are the superusers' to change."""
    RelationSet, HarvestJob = apps.get_model("kgharvest", "RelationSet"), apps.get_model("kgharvest", "HarvestJob")
    for relation_set in RelationSet.objects.filter(created_by=None):
        jobs = HarvestJob.objects.filter(relation__relation_set=relation_set)
        makers = set(jobs.order_by().values_list("created_by", flat=True).distinct())
        if len(makers) == 1:
            RelationSet.objects.filter(pk=relation_set.pk).update(created_by=makers.pop())


class Migration(migrations.Migration):
    dependencies = [("kgharvest", "0011_attempts")]

    operations = [migrations.RunPython(give_makers, migrations.RunPython.noop)]
