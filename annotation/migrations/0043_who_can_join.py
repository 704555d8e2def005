"""Replace the option `takes_guests` of rounds by `who_can_join`, in the columns and in the descriptions.

The same people can join existing rounds. The old column is written too, because web servers of the last release read it.
"""

from django.db import migrations, models

ROWS_AT_ONCE = 500


def replace_takes_guests(apps, schema_editor):
    rounds = apps.get_model("annotation", "Round").objects
    rounds.filter(takes_guests=True).update(who_can_join="link")
    changed = []
    for round in rounds.filter(spec__has_key="takes_guests").only("spec").iterator(chunk_size=ROWS_AT_ONCE):
        if round.spec.pop("takes_guests"):
            round.spec["who_can_join"] = "link"
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
        migrations.RunPython(replace_takes_guests, migrations.RunPython.noop),
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
