"""Django's SQLite backend with a fair queue of writing threads in each process.

SQLite allows one writer at a time. Without a queue, waiting connections poll at intervals of up to 100 ms, and the
first connection to poll after a write continues. With eight annotators, a write would wait for half a second, and
sometimes for seconds. WriterQueue starts the next thread as soon as the previous thread has finished. Threads of
different processes still poll.
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
    """First-in, first-out queue of writers. Turns only put the writers in order; SQLite's lock protects the data."""

    class _Turn:
        def __init__(self) -> None:
            self.thread = threading.current_thread()
            self.has_come = threading.Event()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: deque[WriterQueue._Turn] = deque()  # it is the turn of the first thread

    def __len__(self) -> int:
        return len(self._turns)

    def enter(self, timeout_s: float) -> _Turn:
        """Wait for a turn for at most `timeout_s`. Return the turn, even after a timeout.

        Call `leave` to end the turn.
        """
        turn, deadline = self._Turn(), monotonic() + timeout_s
        with self._lock:
            self._turns.append(turn)
            self._call_first()
        while not turn.has_come.wait(min(POLL_INTERVAL_S, max(deadline - monotonic(), 0))) and monotonic() < deadline:
            with self._lock:
                # Remove threads that ended without leaving. SQLite rolls back their transactions when their connections
                # close.
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


_queues: defaultdict[str, WriterQueue] = defaultdict(WriterQueue)  # queues by database file
os.register_at_fork(after_in_child=_queues.clear)  # the threads that wait do not exist in a child process


class DatabaseWrapper(base.DatabaseWrapper):
    """Connection that has a turn during each transaction (from BEGIN IMMEDIATE to its end) and each single write."""

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
        super()._commit()  # if the commit fails, for example because of a foreign key, a rollback follows
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
