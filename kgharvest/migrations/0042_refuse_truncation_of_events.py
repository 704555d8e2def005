"""Refuse TRUNCATE of the event log on PostgreSQL, with the function that refuses changes. SQLite has no TRUNCATE."""

from django.db import migrations

TRIGGER = "event_refuses_truncate"


def refuse_truncation(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(
            f"CREATE TRIGGER {TRIGGER} BEFORE TRUNCATE ON kgharvest_auditentry "
            "FOR EACH STATEMENT EXECUTE FUNCTION kgharvest_audit_is_append_only()"
        )


def allow_truncation(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"DROP TRIGGER IF EXISTS {TRIGGER} ON kgharvest_auditentry")


class Migration(migrations.Migration):
    safe_while_the_last_release_runs = "Only the trigger is new; the last release does not truncate the table."
    dependencies = [("kgharvest", "0041_published_knowledge")]
    operations = [migrations.RunPython(refuse_truncation, allow_truncation, hints={"on_new_database": True})]
