"""Turn the audit entries into events, which commit without a number and are sealed into the chain later.

The entries move to a new table in one statement, with their numbers as ids. The new table then gets the name of the old
table, so that the last release can continue to append to it.
"""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q

COLUMNS = (
    "number, at, project_id, actor, action, subject_type, subject_id, facts, row_hashes, previous_hash, hash"
)
REFUSAL = "The event log is append-only: events are neither changed nor deleted."
# An update may seal an event that is not sealed, and may erase the account or the free text.
ON_POSTGRESQL = f"""
CREATE OR REPLACE FUNCTION kgharvest_audit_is_append_only() RETURNS trigger AS $$
DECLARE
    seal text[] := ARRAY['number', 'previous_hash', 'hash'];
    erasable text[] := ARRAY['by_id', 'texts'];
BEGIN
    IF TG_OP = 'UPDATE'
        AND (NEW.by_id IS NULL OR NEW.by_id = OLD.by_id) AND (NEW.texts IS NULL OR NEW.texts = OLD.texts)
        AND to_jsonb(NEW) - (seal || erasable) = to_jsonb(OLD) - (seal || erasable)
        AND ((NEW.number, NEW.previous_hash, NEW.hash) IS NOT DISTINCT FROM (OLD.number, OLD.previous_hash, OLD.hash)
            OR OLD.hash IS NULL AND NEW.number IS NOT NULL AND NEW.hash IS NOT NULL)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '{REFUSAL}';
END
$$ LANGUAGE plpgsql;
CREATE TRIGGER event_is_append_only BEFORE UPDATE OR DELETE ON kgharvest_auditentry
FOR EACH ROW EXECUTE FUNCTION kgharvest_audit_is_append_only();
"""
FIXED = "id, at, project_id, actor, action, subject_type, subject_id, facts, row_hashes, round_id, kind, annotator"
ON_SQLITE = {
    "event_refuses_update": f"BEFORE UPDATE OF {FIXED} ON kgharvest_auditentry",
    "event_refuses_another_seal": "BEFORE UPDATE OF number, previous_hash, hash ON kgharvest_auditentry "
    "WHEN OLD.hash IS NOT NULL OR NEW.number IS NULL OR NEW.hash IS NULL",
    "event_refuses_another_account": "BEFORE UPDATE OF by_id ON kgharvest_auditentry "
    "WHEN NEW.by_id IS NOT NULL AND NEW.by_id IS NOT OLD.by_id",
    "event_refuses_another_text": "BEFORE UPDATE OF texts ON kgharvest_auditentry "
    "WHEN NEW.texts IS NOT NULL AND NEW.texts IS NOT OLD.texts",
    "event_refuses_delete": "BEFORE DELETE ON kgharvest_auditentry",
}


def move_entries(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":  # the last release appends again when this has committed
        schema_editor.execute("LOCK TABLE kgharvest_auditentry IN ACCESS EXCLUSIVE MODE")
    schema_editor.execute(
        f"INSERT INTO kgharvest_event (id, {COLUMNS}) SELECT number, {COLUMNS} FROM kgharvest_auditentry ORDER BY number"
    )
    set_sequence(apps, schema_editor)
    schema_editor.delete_model(apps.get_model("kgharvest", "AuditEntry"))


def move_back(apps, schema_editor):
    schema_editor.create_model(apps.get_model("kgharvest", "AuditEntry"))
    schema_editor.execute(
        f"INSERT INTO kgharvest_auditentry ({COLUMNS}) SELECT {COLUMNS} FROM kgharvest_event WHERE number IS NOT NULL"
    )


def set_sequence(apps, schema_editor):
    from django.core.management.color import no_style

    model = apps.get_model("kgharvest", "Event")
    for statement in schema_editor.connection.ops.sequence_reset_sql(no_style(), [model]):
        schema_editor.execute(statement)


def refuse_changes(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(ON_POSTGRESQL, params=None)
        return
    for name, when in ON_SQLITE.items():
        schema_editor.execute(f"CREATE TRIGGER {name} {when} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END")


def allow_changes(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP TRIGGER IF EXISTS event_is_append_only ON kgharvest_auditentry")
        return
    for name in ON_SQLITE:
        schema_editor.execute(f"DROP TRIGGER IF EXISTS {name}")


def rename_content_type(old, new):
    def rename(apps, schema_editor):
        types = apps.get_model("contenttypes", "ContentType").objects.using(schema_editor.connection.alias)
        if not types.filter(app_label="kgharvest", model=new).exists():
            types.filter(app_label="kgharvest", model=old).update(model=new)

    return rename


class Migration(migrations.Migration):
    safe_while_the_last_release_runs = (
        "The table keeps its name and its columns; new columns have database defaults, and the last release waits "
        "while the rows are moved. Its audit page fails if it lists an event type that it does not know; nothing else "
        "reads the entries."
    )
    dependencies = [
        ("contenttypes", "0002_remove_content_type_name"),
        ("kgharvest", "0034_uploads_to_knowledge_graphs"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(db_index=True)),
                ("project_id", models.BigIntegerField(null=True)),
                ("actor", models.CharField(blank=True, max_length=12)),
                ("action", models.CharField(max_length=40)),
                ("subject_type", models.CharField(max_length=40)),
                ("subject_id", models.CharField(max_length=40)),
                ("facts", models.TextField()),
                ("row_hashes", models.TextField(blank=True)),
                ("number", models.PositiveBigIntegerField(editable=False, null=True, unique=True)),
                ("previous_hash", models.CharField(editable=False, max_length=64, null=True)),
                ("hash", models.CharField(editable=False, max_length=64, null=True)),
                ("round_id", models.BigIntegerField(null=True)),
                ("kind", models.CharField(blank=True, db_default="", max_length=30)),
                ("annotator", models.CharField(blank=True, max_length=30, null=True)),
                ("texts", models.JSONField(blank=True, null=True)),
                (
                    "by",
                    models.ForeignKey(
                        blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+",
                        to=settings.AUTH_USER_MODEL, db_constraint=False,
                    ),
                ),
            ],
            options={
                "db_table": "kgharvest_event",
                "ordering": ["pk"],
                "indexes": [
                    models.Index(fields=["project_id", "id"], name="event_of_project"),
                    models.Index(fields=["action", "id"], name="event_by_action"),
                    models.Index(fields=["actor", "id"], name="event_by_actor"),
                    models.Index(condition=Q(round_id__isnull=False), fields=["round_id", "id"], name="event_of_round"),
                    models.Index(condition=Q(hash=None), fields=["id"], name="event_unsealed"),
                ],
            },
        ),
        migrations.RunPython(move_entries, move_back),
        migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel("AuditEntry")]),
        migrations.AlterModelTable("Event", "kgharvest_auditentry"),
        migrations.RunPython(refuse_changes, allow_changes, hints={"on_new_database": True}),
        migrations.RunPython(
            rename_content_type("auditentry", "event"), rename_content_type("event", "auditentry")
        ),
    ]
