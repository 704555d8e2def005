"""Django's SQLite backend, in which the threads of a process write in the order in which they asked to.

SQLite lets one connection write at a time; the others sleep, for up to 100 ms between two looks, and whoever looks at
the right moment is next. Eight annotators wait half a second by that, and some for seconds. Here they queue in their
process (WriterQueue), so that the next one begins when the last has ended. What other processes write, SQLite's own
waiting still settles.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from django.db.backends.sqlite3 import base

WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")
LOOK_EVERY_S = 1.0


class WriterQueue:
    """First come, first served. A turn is a courtesy: SQLite's lock, which is taken within it, is what protects."""

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
        """Wait for a turn and return it; `leave` ends it. After `timeout_s` it is taken without having come."""
        turn, deadline = self._Turn(), monotonic() + timeout_s
        with self._lock:
            self._turns.append(turn)
            self._call_first()
        while not turn.has_come.wait(min(LOOK_EVERY_S, max(deadline - monotonic(), 0))) and monotonic() < deadline:
            self._drop_dead()
        return turn

    def leave(self, turn: _Turn) -> None:
        with self._lock:
            if turn in self._turns:
                self._turns.remove(turn)
            self._call_first()

    def _call_first(self) -> None:
        if self._turns:
            self._turns[0].has_come.set()

    def _drop_dead(self) -> None:
        """Pass over threads that ended without leaving; SQLite ends their transactions with their connections."""
        with self._lock:
            while self._turns and not self._turns[0].thread.is_alive():
                self._turns.popleft()
            self._call_first()


_queues: defaultdict[str, WriterQueue] = defaultdict(WriterQueue)  # by the database's file
os.register_at_fork(after_in_child=_queues.clear)  # those who wait are not in the child


class DatabaseWrapper(base.DatabaseWrapper):
    """A transaction has its turn from BEGIN IMMEDIATE until it ends; a single write for as long as it takes."""

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

    @contextmanager
    def _turn_ended(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._end_turn()

    def _write_in_turn(self, execute, sql, params, many, context):
        if self.in_atomic_block or not sql.startswith(WRITES):
            return execute(sql, params, many, context)
        self._take_turn()
        with self._turn_ended():
            return execute(sql, params, many, context)

    # -- where a transaction begins and ends ---------------------------------------------------------------------------

    def _start_transaction_under_autocommit(self):
        self._take_turn()
        try:
            super()._start_transaction_under_autocommit()
        except BaseException:
            self._end_turn()
            raise

    def _commit(self):
        super()._commit()  # one that fails, as for a foreign key, is rolled back
        self._end_turn()

    def _rollback(self):
        with self._turn_ended():
            super()._rollback()

    def _close(self):
        with self._turn_ended():
            super()._close()
