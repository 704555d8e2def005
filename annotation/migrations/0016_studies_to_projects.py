"""Hand the tables of studies and their members over to kgharvest's projects: they are renamed, no row is touched."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("annotation", "0015_round_completed_at"),
        ("kgharvest", "0016_webhooks"),
    ]

    operations = [
        migrations.AlterModelTable("study", "kgharvest_project"),
        migrations.AlterModelTable("studymember", "kgharvest_projectmember"),
    ]
