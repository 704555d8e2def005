"""Move the round logs into the event log.

Each row becomes an event of its own, outside the chain: earlier versions recorded many acts in the round log and in the
chain, at slightly different times and with different facts, so that no pair is certain. Their action is "round_log."
with the kind, so that acts of the chain are not counted twice.

The table stays, empty and without foreign keys, for web servers and workers of the last release; the next release moves
rows that these wrote during the update, and drops the table.
"""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

MOVE = """
INSERT INTO kgharvest_auditentry (
    at, project_id, actor, action, subject_type, subject_id, facts, row_hashes, previous_hash, hash,
    round_id, kind, annotator, by_id, texts
)
SELECT line.at, round.project_id, '', 'round_log.' || line.kind, 'round', CAST(line.round_id AS varchar(40)), '{}', '',
    '', '', line.round_id, line.kind, annotator.code, line.by_id, line.details
FROM annotation_roundevent AS line
JOIN annotation_round AS round ON round.id = line.round_id
LEFT JOIN annotation_annotator AS annotator ON annotator.id = line.annotator_id
ORDER BY line.id
"""
MOVE_BACK = """
INSERT INTO annotation_roundevent (round_id, kind, annotator_id, by_id, at, details)
SELECT event.round_id, event.kind, annotator.id, event.by_id, event.at, event.texts
FROM kgharvest_auditentry AS event
JOIN annotation_round AS round ON round.id = event.round_id
LEFT JOIN annotation_annotator AS annotator ON annotator.code = event.annotator AND annotator.round_id = round.id
WHERE event.hash = ''
ORDER BY event.id
"""


def move(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":  # a row that commits between the statements would be lost
        schema_editor.execute("LOCK TABLE annotation_roundevent IN ACCESS EXCLUSIVE MODE")
    schema_editor.execute(MOVE, params=None)
    schema_editor.execute("DELETE FROM annotation_roundevent")
    if schema_editor.connection.vendor == "postgresql":  # before the table is altered
        schema_editor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")


def move_back(apps, schema_editor):
    """Return the lines of older versions; events recorded since then have no place in the round log."""
    schema_editor.execute(MOVE_BACK, params=None)


def without_constraint(model, null=True, on_delete=django.db.models.deletion.CASCADE, **options):
    return models.ForeignKey(
        to=model, null=null, blank=null, on_delete=on_delete, db_constraint=False, **options
    )


class Migration(migrations.Migration):
    safe_while_the_last_release_runs = (
        "The table of the round log stays and accepts rows; the last release shows no older lines during the update."
    )
    dependencies = [
        ("annotation", "0035_panels_to_recruiting"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("kgharvest", "0035_events"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RunPython(move, move_back),
        migrations.AlterField(
            "roundevent", "round", without_constraint("annotation.round", null=False, related_name="events")
        ),
        migrations.AlterField("roundevent", "annotator", without_constraint("annotation.annotator", related_name="events")),
        migrations.AlterField(
            "roundevent",
            "by",
            without_constraint(
                settings.AUTH_USER_MODEL, on_delete=django.db.models.deletion.SET_NULL, related_name="+"
            ),
        ),
        migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel("RoundEvent")]),
    ]
