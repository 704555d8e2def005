"""Replace the option `takes_guests` of rounds by `who_can_join`. The same people can join existing rounds.

The old column and the old key of descriptions stay, because web servers of the last release read and write them.
"""

from django.db import migrations, models

ROWS_AT_ONCE = 500


def set_who_can_join(apps, schema_editor):
    apps.get_model("annotation", "Round").objects.filter(takes_guests=True).update(who_can_join="link")


def restore_descriptions(apps, schema_editor):
    """Remove the key that the last release rejects."""
    rounds = apps.get_model("annotation", "Round").objects
    changed = []
    for round in rounds.filter(spec__has_key="who_can_join").only("spec").iterator(chunk_size=ROWS_AT_ONCE):
        if round.spec.pop("who_can_join") == "link":
            round.spec["takes_guests"] = True
        changed.append(round)
    rounds.bulk_update(changed, ["spec"], batch_size=ROWS_AT_ONCE)


class Migration(migrations.Migration):
    safe_while_the_last_release_runs = "The last release reads and writes only takes_guests, which keeps its meaning."

    dependencies = [("annotation", "0042_round_archived_at")]

    operations = [
        migrations.AddField(
            model_name="round",
            name="who_can_join",
            field=models.CharField(
                choices=[
                    ("account", "People with an account: they open the join link and log in"),
                    ("link", "Anybody with the link: they join with a name or code, without an account"),
                    ("invite", "Invited people: each personal invite link lets one person join"),
                ],
                db_default="account",
                default="account",
                help_text="Personal invites work for every choice. You can change the choice while the round is open.",
                max_length=7,
            ),
        ),
        migrations.RunPython(set_who_can_join, restore_descriptions),
        migrations.AddConstraint(
            model_name="round",
            constraint=models.CheckConstraint(
                condition=models.Q(who_can_join__in=["account", "link", "invite"]), name="round_who_can_join_known"
            ),
        ),
        migrations.AlterField(
            model_name="round",
            name="takes_guests",
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
    ]
