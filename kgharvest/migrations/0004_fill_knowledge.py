"""Fill the tables and columns added by 0003 from existing harvests, a bounded number of tuples at a time."""

import re
from pathlib import Path

from django.db import migrations
from django.db.models import Count, Max

ROWS_AT_ONCE = 5000
WORDS = Path(__file__).resolve().parent.parent / "knowledge" / "sensitive_words.txt"


def load_words(apps, schema_editor):
    lines = (" ".join(line.casefold().split()) for line in WORDS.read_text(encoding="utf-8").splitlines())
    SensitiveWord = apps.get_model("kgharvest", "SensitiveWord")
    words = sorted({line for line in lines if line and not line.startswith("#")})
    # Conflicts occur if an interrupted migration runs again.
    SensitiveWord.objects.bulk_create((SensitiveWord(word=word) for word in words), ignore_conflicts=True)


def fill_tuples(apps, schema_editor):
    KnowledgeTuple = apps.get_model("kgharvest", "KnowledgeTuple")
    words = apps.get_model("kgharvest", "SensitiveWord").objects.values_list("word", flat=True)
    is_sensitive = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)").search
    reached = 0
    while tuples := list(KnowledgeTuple.objects.filter(pk__gt=reached).order_by("pk")[:ROWS_AT_ONCE]):
        reached = tuples[-1].pk
        fill(apps, tuples, is_sensitive)


def fill(apps, tuples, is_sensitive):
    EntityOccurrence = apps.get_model("kgharvest", "EntityOccurrence")
    harvested = apps.get_model("kgharvest", "HarvestedTuple").objects.filter(
        knowledge_tuple__gte=tuples[0].pk, knowledge_tuple__lte=tuples[-1].pk
    )
    counts = harvested.order_by().values_list("knowledge_tuple").annotate(n=Count("pk"), best=Max("score"))
    found = {pk: (n, best) for pk, n, best in counts}
    for known in tuples:
        known.n_harvests, known.best_score = found.get(known.pk, (0, None))
        known.is_sensitive = is_sensitive(known.key) is not None
    type(tuples[0]).objects.bulk_update(tuples, ["n_harvests", "best_score", "is_sensitive"], batch_size=500)
    occurrences = (
        EntityOccurrence(entity=entity, knowledge_tuple=known, relation_id=known.relation_id, slot=slot)
        for known in tuples
        if known.n_harvests
        for slot, entity in enumerate(known.entities)
    )
    EntityOccurrence.objects.bulk_create(occurrences, ignore_conflicts=True)


class Migration(migrations.Migration):

    atomic = False  # one transaction for a million tuples would block all users

    dependencies = [("kgharvest", "0003_knowledge")]

    operations = [
        migrations.RunPython(load_words, migrations.RunPython.noop, hints={"on_new_database": True}),
        migrations.RunPython(fill_tuples, migrations.RunPython.noop),
    ]
