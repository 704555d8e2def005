"""The Celery app: `celery -A kgharvest worker`. Besides running tasks, every worker reaps (services.jobs.reap)."""

import os

from celery import Celery, bootsteps, signals

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kgharvest.settings")

app = Celery("kgharvest")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["kgharvest.jobs"])


@signals.setup_logging.connect
def keep_logging(**kwargs):
    """Log as settings.LOGGING says: Celery sets up its own logging unless somebody answers this signal."""


class Reaper(bootsteps.StartStopStep):
    """Look for lost and forgotten jobs now and then, in the worker's main process, which never loads torch.

    A timer in the worker instead of Celery beat: no further process, and several workers doing it are harmless.
    """

    requires = {"celery.worker.components:Timer"}

    def __init__(self, worker, **kwargs):
        super().__init__(worker, **kwargs)
        self.entry = None

    def start(self, worker):
        from django.conf import settings

        from kgharvest.jobs.tasks import look_after_jobs

        signs_in_as = [worker.hostname, worker.concurrency]
        self.entry = worker.timer.call_repeatedly(settings.JOB_REAP_EVERY_S, look_after_jobs, signs_in_as)

    def stop(self, worker):
        if self.entry:
            self.entry.cancel()


app.steps["worker"].add(Reaper)
