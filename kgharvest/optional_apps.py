"""Optional apps: Django apps that extend the registries of the core, which never imports them.

An optional app is active if it is in INSTALLED_APPS. Without it, its URLs do not exist, its panels do not appear, and
its queued jobs wait until it is installed again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from django.apps import AppConfig, apps
from django.conf import settings
from django.db import IntegrityError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.urls import URLPattern, URLResolver, include, path

from kgharvest.errors import DomainError


class OptionalApp(AppConfig):
    """Base class of an optional app's configuration. Each attribute extends the registry of the same name.

    All values are dotted paths, as in kgharvest/registries.py. url_configuration: module with the URL patterns.
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
    report_sections: Sequence[str] = ()
    study_sections: Sequence[str] = ()
    report_outputs: Mapping[str, str] = {}
    draft_deleted: Sequence[str] = ()
    event_types: Sequence[str] = ()

    def ready(self) -> None:
        for region, functions in self.panels.items():
            settings.PANELS.setdefault(region, []).extend(functions)
        settings.JOB_RUNNERS.update(self.outboxes)
        settings.URGENT_JOBS.extend(self.outboxes)
        for name in OptionalApp.__annotations__.keys() - {"url_configuration", "panels"}:
            registry, added = getattr(settings, name.upper()), getattr(self, name)
            (registry.update if isinstance(registry, dict) else registry.extend)(added)


def optional_apps() -> Iterator[OptionalApp]:
    return (config for config in apps.get_app_configs() if isinstance(config, OptionalApp))


def uninstalled_apps(migrations: Iterable[Sequence[str]]) -> list[str]:
    """Return apps with applied migrations that are not installed. migrations: (app, name)."""
    return sorted({app for app, _ in migrations} - {config.label for config in apps.get_app_configs()})


@contextmanager
def uninstalled_rows_kept() -> Iterator[None]:
    """Raise DomainError AppNotInstalled if a deletion fails because rows of an uninstalled app refer to the row.

    Enter it before the outermost transaction, because databases check foreign keys when that transaction ends.
    """
    try:
        yield
    except IntegrityError as error:
        uninstalled = uninstalled_apps(MigrationRecorder(connection).applied_migrations())
        if not uninstalled or "foreign key" not in str(error).lower():
            raise
        raise DomainError(
            "AppNotInstalled",
            f"Cannot delete: rows of an uninstalled app refer to it ({', '.join(uninstalled)}). Install the app "
            "(KGHARVEST_CONTRIB), then delete again.",
        ) from error


def optional_urls() -> list[URLPattern | URLResolver]:
    return [path("", include(config.url_configuration)) for config in optional_apps() if config.url_configuration]
