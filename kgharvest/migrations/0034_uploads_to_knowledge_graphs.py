"""Release UploadedKG to the optional app `knowledge_graphs`; its table stays as it is."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("kgharvest", "0033_wake_only_messages")]

    operations = [
        migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel("UploadedKG")]),
    ]
