"""Fake of Prolific that records executed requests in a file, so that they survive a killed process."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from django.utils import timezone

from annotation.invites.services import join_round
from annotation.judging.assignment import next_batch
from annotation.judging.judgments import Answer, submit_judgment
from annotation.models import Annotator
from kgharvest.contrib.recruiting import platforms
from kgharvest.contrib.recruiting.models import Panel, Platform, PlatformCommand, Submission
from kgharvest.contrib.recruiting.panels.services import complete, enter
from kgharvest.contrib.recruiting.platforms import RecruitingPlatform

LOG_VARIABLE = "KGHARVEST_TEST_PLATFORM"  # environment variable with the path of the log
KILL_VARIABLE = "KGHARVEST_TEST_PLATFORM_DIES"  # "before" or "after": kills the sending process at that point


class StandIn(RecruitingPlatform):
    """Fake platform that executes every request. Exceptions in `trouble` are raised first, one per request."""

    has_api = True
    trouble: list[Exception] = []
    paused: list[int] = []

    def execute(self, command: PlatformCommand) -> None:
        if self.trouble:
            raise self.trouble.pop(0)
        die("before")
        with Path(os.environ[LOG_VARIABLE]).open("a") as file:
            file.write(f"{command.kind} {command.submission_id} {command.key} {command.amount}\n")
        die("after")

    def approve_all(self, submissions: Sequence[Submission]) -> None:
        if self.trouble:
            raise self.trouble.pop(0)
        with Path(os.environ[LOG_VARIABLE]).open("a") as file:
            file.write(f"approve_all {' '.join(str(submission.pk) for submission in submissions)}\n")

    def pause(self) -> None:
        if self.trouble:
            raise self.trouble.pop(0)
        self.paused.append(self.panel.pk)

    def resume(self) -> None:
        self.paused.remove(self.panel.pk)


class ByHandStandIn(StandIn):
    has_api = False


def die(when: str) -> None:
    if os.environ.get(KILL_VARIABLE) == when:
        os.kill(os.getpid(), signal.SIGKILL)


def stand_in(monkeypatch, file: Path, class_name: str = "StandIn") -> None:
    """Replace Prolific by the fake, with its log in `file`."""
    monkeypatch.setenv(LOG_VARIABLE, str(file))
    monkeypatch.setitem(platforms.PLATFORMS, Platform.PROLIFIC, f"{__name__}.{class_name}")
    StandIn.trouble, StandIn.paused = [], []


def execution_counts() -> Counter[str]:
    """Count executed requests by line, such as "bonus 3 bonus:1 150"."""
    file = Path(os.environ[LOG_VARIABLE])
    return Counter(file.read_text().splitlines()) if file.exists() else Counter()


def payments() -> Counter[tuple[int, str]]:
    """Count payments of each bonus by submission id and key."""
    lines = Counter({line: n for line, n in execution_counts().items() if line.startswith("bonus ")})
    return Counter({(int(line.split()[1]), line.split()[2]): n for line, n in lines.items()})


def complete_place(
    panel: Panel,
    person: str = "ada",
    *,
    seconds: tuple[float | None, ...] = (),
    annotator: Annotator | None = None,
    session: str = "",
) -> Submission:
    """Let a person enter, judge one statement per entry of `seconds`, and complete the place.

    annotator: The annotator of the same person in another place.
    """
    submission = enter(panel, person, session or f"{person}-session", timezone.now())
    submission.annotator = annotator or join_round(panel.round, place_size=max(1, len(seconds)))
    submission.save()
    remaining = list(seconds)
    while remaining and (batch := next_batch(submission.annotator, timezone.now())):
        for task in batch[: len(remaining)]:
            submit_judgment(submission.annotator, Answer(task.pk, "true", uuid4(), remaining.pop(0)), timezone.now())
    complete(submission, timezone.now())
    return submission
