"""Simulated annotators who judge through several unreliable web servers. Runs in its own network namespace.

    python tests/load/people_of_several_webs.py FOLDER

FOLDER/people.json lists the annotators and the servers. Each annotator pauses before an answer and retries until a
server acknowledges or permanently rejects it. After each failure the annotator switches to the next server.
Acknowledged answers are logged in FOLDER/acknowledged.jsonl. Until FOLDER/faults_are_over exists, each annotator gives
at most a share of the answers. All annotators stop when FOLDER/is_over exists. This program uses only HTTP.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import threading
import time
from http.client import HTTPException
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.load.web_server import Browser

LABELS = ("true", "false", "unjudgeable")
REFUSED = {"BadAnswer", "Invalid", "NotAssigned", "UuidReused"}  # as in outbox.js
SKIPPED, TWICE = 0.05, 0.3
WAIT_S = 0.5
PORT = 8000
TIMEOUT_S = 15


class Person:
    def __init__(self, seed: int, cookies: dict[str, str], course: dict[str, Any], folder: Path):
        self._rng = random.Random(seed)
        self._course, self._folder = course, folder
        webs = [Browser(PORT, cookies, host, TIMEOUT_S) for host in course["webs"]]
        self._webs = itertools.cycle(webs[seed % len(webs) :] + webs[: seed % len(webs)])
        self._web = next(self._webs)
        self._n_answers = 0
        self.n_failures = 0

    def _is(self, state: str) -> bool:
        return (self._folder / state).exists()

    def _request_with_retries(self, method: str, path: str, **fields: Any) -> tuple[int, Any]:
        """Retry until a server responds; return status and body. Returns (0, b"{}") when the run is over."""
        while not self._is("is_over"):
            try:
                status, body = self._web.request(method, self._course["path"] + path, **fields)
                if status < 500 and status != 429:
                    return status, body
            except (OSError, HTTPException):
                pass
            self.n_failures += 1
            self._web = next(self._webs)
            time.sleep(WAIT_S)
        return 0, b"{}"

    def judge(self) -> None:
        while not self._is("is_over"):
            status, body = self._request_with_retries("GET", "")
            tasks = json.loads(body).get("tasks", []) if status == 200 and body.startswith(b"{") else []
            for task in tasks:
                while self._n_answers >= self._course["share"] and not (
                    self._is("faults_are_over") or self._is("is_over")
                ):
                    time.sleep(WAIT_S)
                time.sleep(self._rng.uniform(0, self._course["longest_pause_s"]))
                if self._rng.random() < SKIPPED:
                    self._request_with_retries("POST", "skip/", task=task["task"])
                else:
                    self._answer(task["task"])
            if not tasks:
                self._request_with_retries("POST", "skipped/")
                time.sleep(2 * WAIT_S)

    def _answer(self, task: int) -> None:
        fields = {"task": task, "label": self._rng.choice(LABELS), "client_uuid": uuid4(), "seconds": 1}
        for _ in range(1 + (self._rng.random() < TWICE)):
            status, body = self._request_with_retries("POST", "", **fields)
            if status == 200:
                self._n_answers += 1
                self._note(uuid=str(fields["client_uuid"]), label=fields["label"])
            elif status and json.loads(body)["error"]["code"] not in REFUSED:
                raise RuntimeError(f"{status} {body!r}")

    def _note(self, **answer: str) -> None:
        with (self._folder / "acknowledged.jsonl").open("a") as file:
            file.write(json.dumps(answer) + "\n")  # one short write: atomic


def main(folder: Path) -> None:
    course = json.loads((folder / "people.json").read_text())
    people = [Person(seed, cookies, course, folder) for seed, cookies in enumerate(course["cookies"])]
    threads = [threading.Thread(target=person.judge) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (folder / "failures").write_text(str(sum(person.n_failures for person in people)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
