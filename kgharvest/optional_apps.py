"""Optional apps: Django apps that the core never imports and that extend its registries.

An optional app is active if INSTALLED_APPS names it. Everything else works without it: its URLs do not exist, its
panels do not appear, and its queued jobs wait until it is installed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from django.apps import AppConfig, apps
from django.conf import settings
from django.urls import URLPattern, URLResolver, include, path


class OptionalApp(AppConfig):
    """Base class of an optional app's configuration. Each attribute extends the registry of the same name.

    All values are dotted paths, as in kgharvest/registries.py. `url_configuration`: the module of its URL patterns.
    """

    url_configuration: str = ""
    panels: Mapping[str, Sequence[str]] = {}
    hooks: Mapping[str, str] = {}
    outboxes: Mapping[str, str] = {}
    job_runners: Mapping[str, str] = {}
    lm_jobs: Sequence[str] = ()
    urgent_jobs: Sequence[str] = ()
    periodic_tasks: Sequence[str] = ()
    audited: Mapping[str, str] = {}
    metrics: Sequence[str] = ()

    def ready(self) -> None:
        for region, functions in self.panels.items():
            settings.PANELS.setdefault(region, []).extend(functions)
        settings.HOOKS.update(self.hooks)
        settings.OUTBOXES.update(self.outboxes)
        settings.JOB_RUNNERS.update(self.outboxes | self.job_runners)
        settings.LM_JOBS.extend(self.lm_jobs)
        settings.URGENT_JOBS.extend([*self.outboxes, *self.urgent_jobs])
        settings.PERIODIC_TASKS.extend(self.periodic_tasks)
        settings.AUDITED.update(self.audited)
        settings.METRICS.extend(self.metrics)


def optional_apps() -> Iterator[OptionalApp]:
    return (config for config in apps.get_app_configs() if isinstance(config, OptionalApp))


def optional_urls() -> list[URLPattern | URLResolver]:
    """Return the URL patterns of the installed optional apps."""
    return [path("", include(config.url_configuration)) for config in optional_apps() if config.url_configuration]
