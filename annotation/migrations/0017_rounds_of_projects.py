"""Rounds belong to projects (kgharvest 0013), and their names are the project's, not the installation's."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("annotation", "0016_studies_to_projects"),
        ("kgharvest", "0017_projects"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterField(
                    model_name="round",
                    name="study",
                    field=models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="rounds", to="kgharvest.project"
                    ),
                ),
                migrations.DeleteModel("StudyMember"),
                migrations.DeleteModel("Study"),
            ],
        ),
        migrations.RenameField(model_name="round", old_name="study", new_name="project"),
        migrations.AlterField(
            model_name="round",
            name="name",
            field=models.SlugField(
                help_text="Letters, digits, - and _. Annotators see it: name no LM and no setting.", max_length=100
            ),
        ),
        migrations.AddConstraint(
            model_name="round",
            constraint=models.UniqueConstraint(fields=("project", "name"), name="round_project_name_unique"),
        ),
    ]
