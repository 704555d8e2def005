"""Simulated annotators on an unreliable web server. Uses only HTTP, so that processes start fast."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from json import JSONDecodeError
from uuid import UUID, uuid4

from tests.load.web_server import Browser

LABELS = ("true", "false", "unjudgeable")
LONGEST_PAUSE_S = 0.05
SKIPPED, ABANDONED = 0.05, 0.1  # shares of statements that people skip or never answer
WAIT_S = 0.2


@dataclass(frozen=True)
class Person:
    """cookies: session cookies. round: path of the judging page. share: maximum answers before the last kill."""

    port: int
    round: str
    cookies: dict[str, str]
    seed: int
    share: int


def judge_as(people: Sequence[Person], are_kills_done, is_over) -> list[UUID]:
    """Judge as all people concurrently until `is_over` is set; return the UUIDs of acknowledged answers.

    A person who reaches their share waits for `are_kills_done`, so that the round cannot complete before the kills.
    """
    with ThreadPoolExecutor(len(people)) as pool:
        acknowledged = pool.map(partial(_judge, are_kills_done=are_kills_done, is_over=is_over), people)
    return [uuid for uuids in acknowledged for uuid in uuids]


def _judge(person: Person, are_kills_done, is_over) -> list[UUID]:
    rng = random.Random(person.seed)
    first, second = (Browser(person.port, person.cookies) for _ in range(2))
    acknowledged = []
    while not is_over.is_set():
        tasks = _retry(lambda: first.json("GET", person.round)[1]["tasks"], is_over) or []
        for task in (statement["task"] for statement in tasks):
            while len(acknowledged) >= person.share and not (are_kills_done.is_set() or is_over.is_set()):
                time.sleep(WAIT_S)
            time.sleep(rng.uniform(0, LONGEST_PAUSE_S))
            fate = rng.random()
            if fate < SKIPPED:
                _retry(lambda task=task: first.request("POST", f"{person.round}skip/", task=task), is_over)
            elif fate > SKIPPED + ABANDONED:
                acknowledged += _answer(person, task, (first, second), rng, is_over)
        if not tasks:
            _retry(lambda: first.request("POST", f"{person.round}skipped/"), is_over)
            time.sleep(WAIT_S)
    return acknowledged


def _answer(person: Person, task: int, browsers: Sequence[Browser], rng: random.Random, is_over) -> list[UUID]:
    """Send an answer twice, half of the time simultaneously. Each is retried until acknowledged or rejected."""
    uuid = uuid4()
    fields = {"task": task, "label": rng.choice(LABELS), "client_uuid": uuid, "seconds": 1, "more": rng.choice("01")}

    def send(browser: Browser) -> bool | None:
        return _retry(lambda: browser.json("POST", person.round, **fields)[0] == 200, is_over)

    return [uuid] if any(_send_twice(send, browsers, at_once=rng.random() < 0.5)) else []


def _send_twice(send: Callable, browsers: Sequence[Browser], at_once: bool) -> list[bool | None]:
    if not at_once:
        return [send(browser) for browser in browsers]
    together, outcomes = threading.Barrier(2), []

    def run(browser: Browser) -> None:
        together.wait()
        outcomes.append(send(browser))

    threads = [threading.Thread(target=run, args=(browser,)) for browser in browsers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def _retry(send: Callable, is_over):
    """Retry `send` while the server is down, as the judging page does. Returns None if the round ends meanwhile."""
    while not is_over.is_set():
        try:
            return send()
        except (OSError, HTTPException, JSONDecodeError, KeyError):
            time.sleep(WAIT_S)
    return None
