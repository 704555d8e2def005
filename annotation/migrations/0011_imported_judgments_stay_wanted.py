from django.db import migrations
from django.db.models import Count, F, OuterRef, Subquery


def want_what_was_excluded(apps, schema_editor):
    """An imported task's k is how many judgments it received, those of excluded annotators included."""
    task_model, judgment_model = apps.get_model("annotation", "JudgmentTask"), apps.get_model("annotation", "Judgment")
    received = judgment_model.objects.filter(task=OuterRef("pk"), superseded_by=None).order_by().values("task")
    tasks = task_model.objects.filter(round__source="imported", is_gold=False, judgments__is_excluded=True).distinct()
    task_model.objects.filter(pk__in=tasks.values("pk")).update(
        n_wanted=Subquery(received.annotate(n=Count("pk")).values("n")), verdict=""
    )
    task_model.objects.filter(pk__in=tasks.values("pk"), n_judgments__gt=F("n_wanted")).update(n_wanted=F("n_judgments"))


class Migration(migrations.Migration):
    dependencies = [("annotation", "0010_gold_cannot_be_told")]

    operations = [migrations.RunPython(want_what_was_excluded, migrations.RunPython.noop)]
