import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Add uploaded KG files whose relations a user is mapping."""

    dependencies = [
        ("kgharvest", "0023_scales_of_outside_kgs"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="UploadedKG",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("uploaded_at", models.DateTimeField()),
                ("system", models.CharField(max_length=500)),
                ("file_name", models.CharField(max_length=255)),
                ("file_format", models.CharField(max_length=10)),
                ("content", models.BinaryField()),
                ("labels", models.BinaryField(null=True)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="kgharvest.project"
                    ),
                ),
                (
                    "uploaded_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
        ),
    ]
