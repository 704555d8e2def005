"""Messages that wake workers, sent by a thread of each process, so that no request waits for a broker that hangs.

A message that is not sent is no loss: the job waits in the ledger, where idle workers look every few seconds. So a
request waits for LONGEST_WAIT_S at most, and not at all while the broker is known not to answer. Messages in line then
are sent when the broker answers.
"""

from __future__ import annotations

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
LONGEST_LINE = 200  # messages of this process that wait for a broker; further ones are dropped
LOOK_EVERY_S = 5  # at the broker, while people look at pages that say whether it answers
CONNECT_WITHIN_S = 3
RETRY_ONCE = {"max_retries": 1, "interval_start": 0, "interval_max": 0}  # a connection may be old, its broker new


class Errand:
    """What the thread does for somebody who may wait for it. has_succeeded: None until it is done."""

    def __init__(self, do: Callable[[], object]):
        self.do = do
        self.done = threading.Event()
        self.has_succeeded: bool | None = None
        self.asked_at, self.asked_on = timezone.now(), monotonic()


class Messenger:
    """A line of errands to the broker and the thread that does them; both are made when they are first needed."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as a process that was forked has no threads of its parent's."""
        self._line: queue.Queue[Errand] = queue.Queue(LONGEST_LINE)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._in_hand: Errand | None = None
        self._failed_since: datetime | None = None
        self._looked_on = 0.0

    def run(self, do: Callable[[], object], wait_s: float = LONGEST_WAIT_S) -> bool:
        """Put an errand in line; return whether it was done within `wait_s`. Nobody waits while the broker is away."""
        errand = Errand(do)
        is_away = self.away_since() is not None
        try:
            self._line.put_nowait(errand)
        except queue.Full:
            return False
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="messages", daemon=True)
                self._thread.start()
        return errand.done.wait(0 if is_away else wait_s) and bool(errand.has_succeeded)

    def away_since(self) -> datetime | None:
        """Return since when the broker has not answered this process, None if it does or nobody has asked it."""
        in_hand = self._in_hand
        if self._failed_since is None and in_hand and monotonic() - in_hand.asked_on >= LONGEST_WAIT_S:
            return in_hand.asked_at
        return self._failed_since

    def look(self) -> None:
        """Have the thread ask the broker whether it is there, unless that was done within LOOK_EVERY_S."""
        if self._line.empty() and self._in_hand is None and monotonic() - self._looked_on >= LOOK_EVERY_S:
            self._looked_on = monotonic()
            self.run(connect, wait_s=0)

    def _work(self) -> None:
        while True:
            errand = self._line.get()
            errand.asked_on = monotonic()
            self._in_hand = errand
            try:
                errand.do()
            except (BrokerError, OSError) as error:
                errand.has_succeeded = False
                if self._failed_since is None:
                    self._failed_since = errand.asked_at
                    logger.warning("The broker does not answer (%s); jobs wait until it does.", error)
            except Exception:
                errand.has_succeeded = False
                logger.exception("A message could not be sent; idle workers find the job.")
            else:
                errand.has_succeeded = True
                if self._failed_since is not None:
                    logger.warning("The broker answers again; it had not since %s.", self._failed_since)
                self._failed_since = None
            finally:
                self._in_hand = None
                self._looked_on = monotonic()
                errand.done.set()


def connect() -> None:
    """Connect to the broker anew. Raises BrokerError or OSError if it does not answer within CONNECT_WITHIN_S."""
    with app.connection_for_write(connect_timeout=CONNECT_WITHIN_S) as broker:
        broker.ensure_connection(max_retries=1, interval_start=0, timeout=CONNECT_WITHIN_S)


messenger = Messenger()
os.register_at_fork(after_in_child=messenger.forget)


def wake(queue_name: str, request_id: str = "") -> None:
    """Send a message that wakes a worker of the queue. request_id: of the request that queued the job, for the log."""
    options = {"queue": queue_name, "headers": {"request_id": request_id}}
    if not messenger.run(lambda: app.send_task("kgharvest.run_job", retry_policy=RETRY_ONCE, **options)):
        logger.info("No message was sent to the queue %s; idle workers find its jobs.", queue_name)


def away_since() -> datetime | None:
    """Return since when the broker has not answered, as this process knows it; it is asked again in the background."""
    messenger.look()
    return messenger.away_since()
