"""Events about accounts: creation, changes of rights and passwords, deletion, and logins.

Signals cover all writers: pages, commands, and Django's admin pages. The account that acts is the user of the current
request.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.signals import user_logged_in
from django.db import transaction
from django.db.models.signals import post_save, pre_delete, pre_save
from django.http import HttpRequest

from kgharvest.audit.tables import AuditedTable
from kgharvest.events.recording import actor_code, record

COLUMNS = ("password", "is_superuser", "is_staff", "is_active", "email")
# The random salt of the password hash prevents guessing of the email address from the hash of the row.
ACCOUNTS = AuditedTable(get_user_model(), *COLUMNS, is_mutable=True)
current_request: ContextVar[HttpRequest | None] = ContextVar("current_request", default=None)


def acting_user() -> Any:
    """Return the account of the current request, or None for an anonymous request, a worker, or a command."""
    user = getattr(current_request.get(), "user", None)
    return user if user is not None and user.pk else None


def connect() -> None:
    """Connect the signals of the user model."""
    User = get_user_model()
    pre_save.connect(_note_changes, sender=User)
    post_save.connect(_record_changes, sender=User)
    pre_delete.connect(_record_deletion, sender=User)
    user_logged_in.connect(_record_login)


def _note_changes(instance: Any, update_fields: Sequence[str] | None, **of_signal: Any) -> None:
    columns = [name for name in COLUMNS if update_fields is None or name in update_fields]
    stored = columns and type(instance).objects.filter(pk=instance.pk).values(*columns).first()
    instance.changed_columns = [name for name in columns if stored and stored[name] != getattr(instance, name)]


@transaction.atomic
def _record_changes(instance: Any, created: bool, raw: bool, **of_signal: Any) -> None:
    if created and not raw:
        record("account.created", instance, acting_user(), person=actor_code(instance))
    elif instance.changed_columns and not raw:
        what = ", ".join(instance.changed_columns)
        record("account.set", instance, acting_user(), person=actor_code(instance), what=what)


def _record_deletion(instance: Any, **of_signal: Any) -> None:
    if not getattr(instance, "is_deletion_recorded", False):
        record_deletion("account.deleted", instance, acting_user())


def record_deletion(action: str, user: Any, by: Any) -> None:
    """Record that the caller deletes an account next, with its tokens and memberships."""
    deleted = [user, *user.api_tokens.all(), *user.memberships.all()]
    record(action, ("user", user.pk), by, deleted=deleted, person=actor_code(user))
    user.is_deletion_recorded = True


def _record_login(user: Any, **of_signal: Any) -> None:
    record("account.logged_in", user, user)
