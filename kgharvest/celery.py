"""Celery app: `celery -A kgharvest worker`. Its task and the periodic tasks are in kgharvest.jobs.tasks."""

import os

from celery import Celery, signals

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kgharvest.settings")

app = Celery("kgharvest")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["kgharvest.jobs"])


@signals.setup_logging.connect
def keep_logging(**kwargs):
    """Keep settings.LOGGING: Celery configures its own logging unless this signal has a receiver."""
