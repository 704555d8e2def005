"""Release the models of panels and pay to the optional app `recruiting`; their tables stay as they are."""

from django.db import migrations

MODELS = ["PayEntry", "PlatformCommand", "Submission", "PanelEvent", "Panel"]


class Migration(migrations.Migration):
    dependencies = [("annotation", "0034_submission_browser")]

    operations = [
        migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel(name) for name in MODELS]),
    ]
