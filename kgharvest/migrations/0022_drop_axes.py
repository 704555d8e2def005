from django.db import migrations
from django.db.migrations.recorder import MigrationRecorder

TABLES = ["axes_accessattemptexpiration", "axes_accessattempt", "axes_accessfailurelog", "axes_accesslog"]


def forget_migrations(apps, schema_editor):
    MigrationRecorder(schema_editor.connection).migration_qs.filter(app="axes").delete()


class Migration(migrations.Migration):
    """Drop the tables of django-axes, which is no longer used. It stored names and addresses of users who logged in."""

    dependencies = [("kgharvest", "0021_token_projects")]

    operations = [
        *(migrations.RunSQL(f"DROP TABLE IF EXISTS {table}", migrations.RunSQL.noop) for table in TABLES),
        migrations.RunPython(forget_migrations, migrations.RunPython.noop),
    ]
