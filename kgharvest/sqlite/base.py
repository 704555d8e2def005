"""Django's SQLite backend with a fair queue of writing threads in each process.

SQLite allows one writer at a time. Waiting connections poll at intervals of up to 100 ms, and the first to poll after a
write continues. With eight annotators, a write then waits for half a second, and sometimes for seconds. WriterQueue
starts the next thread when the previous thread has finished. Threads of different processes still poll.
"""

import os
import threading
from collections import defaultdict, deque
from time import monotonic
from typing import Any

from django.db.backends.sqlite3 import base

WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")
POLL_INTERVAL_S = 1.0


class WriterQueue:
    """First-in, first-out queue of writers. Turns only order the writers; SQLite's lock protects the data."""

    class _Turn:
        def __init__(self) -> None:
            self.thread = threading.current_thread()
            self.has_come = threading.Event()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: deque[WriterQueue._Turn] = deque()  # the first has its turn

    def __len__(self) -> int:
        return len(self._turns)

    def enter(self, timeout_s: float) -> _Turn:
        """Wait for a turn, at most `timeout_s`, and return it even after a timeout. End it with `leave`."""
        turn, deadline = self._Turn(), monotonic() + timeout_s
        with self._lock:
            self._turns.append(turn)
            self._call_first()
        while not turn.has_come.wait(min(POLL_INTERVAL_S, max(deadline - monotonic(), 0))) and monotonic() < deadline:
            with self._lock:
                # Threads can end without leaving. SQLite rolls back when their connections close.
                while self._turns and not self._turns[0].thread.is_alive():
                    self._turns.popleft()
                self._call_first()
        return turn

    def leave(self, turn: _Turn) -> None:
        with self._lock:
            if turn in self._turns:
                self._turns.remove(turn)
            self._call_first()

    def _call_first(self) -> None:
        if self._turns:
            self._turns[0].has_come.set()


_queues: defaultdict[str, WriterQueue] = defaultdict(WriterQueue)  # by database file
os.register_at_fork(after_in_child=_queues.clear)  # waiting threads do not exist in the child


class DatabaseWrapper(base.DatabaseWrapper):
    """Holds a turn for each transaction, from BEGIN IMMEDIATE to its end, and for each single write."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._turn: Any = None
        self.execute_wrappers.append(self._write_in_turn)

    @property
    def _queue(self) -> WriterQueue:
        return _queues[str(self.settings_dict["NAME"])]

    def _take_turn(self) -> None:
        if self._turn is None:
            self._turn = self._queue.enter(self.settings_dict["OPTIONS"].get("timeout", 5.0))

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            self._queue.leave(turn)

    def _write_in_turn(self, execute, sql, params, many, context):
        if self.in_atomic_block or not sql.startswith(WRITES):
            return execute(sql, params, many, context)
        self._take_turn()
        try:
            return execute(sql, params, many, context)
        finally:
            self._end_turn()

    def _start_transaction_under_autocommit(self):
        self._take_turn()
        try:
            super()._start_transaction_under_autocommit()
        except BaseException:
            self._end_turn()
            raise

    def _commit(self):
        super()._commit()  # a failed commit, for example due to a foreign key, is followed by a rollback
        self._end_turn()

    def _rollback(self):
        try:
            super()._rollback()
        finally:
            self._end_turn()

    def _close(self):
        try:
            super()._close()
        finally:
            self._end_turn()
