from django.db import migrations


def give_makers(apps, schema_editor):
    """Set the creator of a relation set if a single user has launched its harvests. Superusers can change other sets."""
    RelationSet, HarvestJob = apps.get_model("kgharvest", "RelationSet"), apps.get_model("kgharvest", "HarvestJob")
    for relation_set in RelationSet.objects.filter(created_by=None):
        jobs = HarvestJob.objects.filter(relation__relation_set=relation_set)
        makers = set(jobs.order_by().values_list("created_by", flat=True).distinct())
        if len(makers) == 1:
            RelationSet.objects.filter(pk=relation_set.pk).update(created_by=makers.pop())


class Migration(migrations.Migration):
    dependencies = [("kgharvest", "0011_attempts")]

    operations = [migrations.RunPython(give_makers, migrations.RunPython.noop)]
