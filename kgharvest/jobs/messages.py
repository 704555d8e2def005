"""Messages that wake workers. A background thread sends them, so that requests do not wait for an unresponsive broker.

A lost message does no harm, because idle workers check the ledger every few seconds. A request waits at most
LONGEST_WAIT_S, and not at all if the broker is known to be unavailable. Queued messages are sent when the broker
answers again.
"""

import logging
import os
import queue
import threading
from collections.abc import Callable
from datetime import datetime
from time import monotonic

from django.utils import timezone
from kombu.exceptions import OperationalError as BrokerError

from kgharvest.celery import app

logger = logging.getLogger(__name__)

LONGEST_WAIT_S = 1.0
MAX_QUEUED = 200  # maximum number of messages that wait for the broker in this process; more messages are dropped
LOOK_EVERY_S = 5  # interval between broker checks while pages show the broker's status
CONNECT_WITHIN_S = 3
RETRY_ONCE = {"max_retries": 1, "interval_start": 0, "interval_max": 0}  # retry, because the broker may have restarted


class BrokerCall:
    """A broker call to be made by the background thread."""

    def __init__(self, do: Callable[[], object]):
        self.do = do
        self.done = threading.Event()
        self.has_succeeded = False
        self.asked_at, self.asked_on = timezone.now(), monotonic()


class Messenger:
    """Queue of broker calls, and the background thread that makes them. The thread is started on first use."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset the state. A forked process does not inherit its parent's threads."""
        self._calls: queue.Queue[BrokerCall] = queue.Queue(MAX_QUEUED)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._current: BrokerCall | None = None
        self._failed_since: datetime | None = None
        self._looked_on = 0.0

    def run(self, do: Callable[[], object], wait_s: float = LONGEST_WAIT_S) -> bool:
        """Queue a call, and return whether it succeeded within `wait_s`. If the broker is unavailable, do not wait."""
        call = BrokerCall(do)
        is_away = self.away_since() is not None
        try:
            self._calls.put_nowait(call)
        except queue.Full:
            return False
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="messages", daemon=True)
                self._thread.start()
        return call.done.wait(0 if is_away else wait_s) and call.has_succeeded

    def away_since(self) -> datetime | None:
        """Return the time of the first unanswered call, or None if the broker answers or was not called."""
        current = self._current
        if self._failed_since is None and current and monotonic() - current.asked_on >= LONGEST_WAIT_S:
            return current.asked_at
        return self._failed_since

    def look(self) -> None:
        """Check in the background whether the broker answers, at most once every LOOK_EVERY_S."""
        if self._calls.empty() and self._current is None and monotonic() - self._looked_on >= LOOK_EVERY_S:
            self._looked_on = monotonic()
            self.run(connect, wait_s=0)

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            call.asked_on = monotonic()
            self._current = call
            try:
                call.do()
            except (BrokerError, OSError) as error:
                if self._failed_since is None:
                    self._failed_since = call.asked_at
                    logger.warning("The broker does not answer (%s). Jobs stay queued until it does.", error)
            except Exception:
                logger.exception("A message could not be sent. Idle workers will find the job.")
            else:
                call.has_succeeded = True
                if self._failed_since is not None:
                    logger.warning("The broker answers again. It had been unavailable since %s.", self._failed_since)
                self._failed_since = None
            finally:
                self._current = None
                self._looked_on = monotonic()
                call.done.set()


def connect() -> None:
    """Open a new connection to the broker. Raises BrokerError or OSError after CONNECT_WITHIN_S."""
    with app.connection_for_write(connect_timeout=CONNECT_WITHIN_S) as broker:
        broker.ensure_connection(max_retries=1, interval_start=0, timeout=CONNECT_WITHIN_S)


messenger = Messenger()
os.register_at_fork(after_in_child=messenger.forget)


def wake(queue_name: str, request_id: str = "") -> None:
    """Wake a worker of the queue. request_id: id of the request that queued the job, for the log."""
    options = {"queue": queue_name, "headers": {"request_id": request_id}}
    if not messenger.run(lambda: app.send_task("kgharvest.run_job", retry_policy=RETRY_ONCE, **options)):
        logger.info("No message was sent to the queue %s. Idle workers will find its jobs.", queue_name)


def away_since() -> datetime | None:
    """Return the time since which the broker has been unavailable, or None. Rechecks it in the background."""
    messenger.look()
    return messenger.away_since()
