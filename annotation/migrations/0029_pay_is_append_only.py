"""Let the database refuse to change or delete lines of the pay ledger."""

from django.db import migrations

# Who wrote a line is forgotten with their account; nothing else of it ever changes.
REFUSAL = "The pay ledger is append-only: its lines are neither changed nor deleted."
ON_POSTGRESQL = f"""
CREATE FUNCTION annotation_pay_is_append_only() RETURNS trigger AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.by_id IS NULL AND to_jsonb(NEW) - 'by_id' = to_jsonb(OLD) - 'by_id' THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '{REFUSAL}';
END
$$ LANGUAGE plpgsql;
CREATE TRIGGER pay_entry_is_append_only BEFORE UPDATE OR DELETE ON annotation_payentry
FOR EACH ROW EXECUTE FUNCTION annotation_pay_is_append_only();
"""
COLUMNS = "id, panel_id, submission_id, side, purpose, key, amount, reason, event_id, command_id, at"
ON_SQLITE = {
    "pay_entry_refuses_update": f"BEFORE UPDATE OF {COLUMNS} ON annotation_payentry",
    "pay_entry_refuses_author": "BEFORE UPDATE OF by_id ON annotation_payentry WHEN NEW.by_id IS NOT NULL",
    "pay_entry_refuses_delete": "BEFORE DELETE ON annotation_payentry",
}


def refuse_changes(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(ON_POSTGRESQL)
        return
    for name, when in ON_SQLITE.items():
        schema_editor.execute(f"CREATE TRIGGER {name} {when} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END")


def allow_changes(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("DROP TRIGGER IF EXISTS pay_entry_is_append_only ON annotation_payentry")
        schema_editor.execute("DROP FUNCTION IF EXISTS annotation_pay_is_append_only()")
        return
    for name in ON_SQLITE:
        schema_editor.execute(f"DROP TRIGGER IF EXISTS {name}")


class Migration(migrations.Migration):
    dependencies = [("annotation", "0028_reconcile_error")]

    operations = [migrations.RunPython(refuse_changes, allow_changes, hints={"on_new_database": True})]
