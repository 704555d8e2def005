"""Stations at which work queues, simulated event by event: what benches/capacity.py is made of.

A process is a generator that yields what it waits for: a number of seconds, a Turn at a station, a Flush of a log. Whom
a station serves next is who came first. SimPy says the same in more words and took ten times as long; a scenario here
has millions of events.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Generator, Iterator
from itertools import count
from typing import NamedTuple

Process = Generator["float | Turn | Take | Flush", None, None]


class Station:
    """Servers that work side by side, with one queue before them. busy_s: the seconds that they have worked in all."""

    def __init__(self, n_servers: int):
        self.n_servers = n_servers
        self.n_free = n_servers
        self.waiting: deque[Process] = deque()
        self.busy_s = 0.0


class Take(NamedTuple):
    """A server of the station, kept until `release`."""

    station: Station


class Turn(NamedTuple):
    """A server of the station for `seconds`."""

    station: Station
    seconds: float


class Log:
    """A log that is flushed for all who wait at once, as PostgreSQL's WAL: who comes during a flush waits for the next.

    A flush takes `flush_s` and the bytes of its commits at `bytes_per_s`.
    """

    def __init__(self, flush_s: float, bytes_per_s: float):
        self.flush_s, self.bytes_per_s = flush_s, bytes_per_s
        self.waiting: list[Process] = []
        self.n_bytes = 0.0
        self.is_flushing = False
        self.busy_s = 0.0


class Flush(NamedTuple):
    log: Log
    n_bytes: float


class Simulation:
    """A clock in seconds and what happens next."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple] = []
        self._number = count()

    def start(self, process: Process, at: float = 0.0) -> None:
        self._at(at, process)

    def run(self, until: float) -> None:
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, process, station = heapq.heappop(events)
            if station is not None:
                self.release(station)
            if isinstance(process, Log):
                self._end_flush(process)
            else:
                self._advance(process)
        self.now = until

    def release(self, station: Station) -> None:
        """Give a server back, to whoever waits first."""
        station.n_free += 1
        if station.waiting:
            process, seconds = station.waiting.popleft()
            self._serve(station, process, seconds)

    def _at(self, time: float, process: Process | Log, station: Station | None = None) -> None:
        heapq.heappush(self._events, (time, next(self._number), process, station))

    def _advance(self, process: Process) -> None:
        for wanted in process:
            if isinstance(wanted, float):
                self._at(self.now + wanted, process)
            elif isinstance(wanted, Flush):
                self._flush(wanted, process)
            else:
                seconds = wanted.seconds if isinstance(wanted, Turn) else None
                if wanted.station.n_free:
                    self._serve(wanted.station, process, seconds)
                else:
                    wanted.station.waiting.append((process, seconds))
            return

    def _serve(self, station: Station, process: Process, seconds: float | None) -> None:
        station.n_free -= 1
        if seconds is None:  # kept: the process goes on at once, and releases it
            self._at(self.now, process)
        else:
            station.busy_s += seconds
            self._at(self.now + seconds, process, station)

    def _flush(self, wanted: Flush, process: Process) -> None:
        log = wanted.log
        log.waiting.append(process)
        log.n_bytes += wanted.n_bytes
        if not log.is_flushing:
            self._begin_flush(log)

    def _begin_flush(self, log: Log) -> None:
        seconds = log.flush_s + log.n_bytes / log.bytes_per_s
        log.is_flushing, log.n_bytes = True, 0.0
        log.in_flush, log.waiting = log.waiting, []
        log.busy_s += seconds
        self._at(self.now + seconds, log)

    def _end_flush(self, log: Log) -> None:
        done, log.is_flushing = log.in_flush, False
        if log.waiting:
            self._begin_flush(log)
        for process in done:
            self._advance(process)


def sliced(station: Station, seconds: float, slice_s: float = 0.01) -> Iterator[Turn]:
    """Yield the turns of long work, between which others get theirs, as a system's scheduler gives them."""
    while seconds > 0:
        yield Turn(station, min(seconds, slice_s))
        seconds -= slice_s
