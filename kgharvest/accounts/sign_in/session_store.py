"""Database session store that reads sessions with a prepared statement, because every request reads one."""

from datetime import datetime

from django.contrib.sessions.backends import db
from django.contrib.sessions.models import Session
from django.db.models import QuerySet
from django.utils import timezone

from kgharvest.bulk.prepared import Parameter, PreparedSelect


@PreparedSelect
def _unexpired() -> QuerySet[Session]:
    return Session.objects.filter(
        session_key=Parameter(Session, "session_key"), expire_date__gt=Parameter(Session, "expire_date")
    )


def delete_expired_sessions(now: datetime) -> None:
    """Delete expired sessions, like `clearsessions`. Writes nothing if no session has expired."""
    expired = Session.objects.filter(expire_date__lt=now)
    if expired.exists():
        expired.delete()


class SessionStore(db.SessionStore):
    def _get_session_from_db(self) -> Session | None:
        # PostgreSQL does not accept NUL, which a cookie can contain.
        has_nul = "\x00" in self.session_key
        sessions = [] if has_nul else _unexpired(session_key=self.session_key, expire_date=timezone.now())
        if not sessions:
            self._session_key = None
        return sessions[0] if sessions else None
