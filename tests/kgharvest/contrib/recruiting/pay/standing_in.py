"""A platform that stands in for Prolific: it counts what it did in a file, so that whoever is killed leaves it."""

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

DONE_AT = "KGHARVEST_TEST_PLATFORM"  # names the file
DIES = "KGHARVEST_TEST_PLATFORM_DIES"  # "before" or "after": the process that sends is killed then


class StandIn(RecruitingPlatform):
    """Does whatever it is asked, once for each time that it is asked. trouble: raised, in turn, instead."""

    has_api = True
    trouble: list[Exception] = []
    paused: list[int] = []

    def execute(self, command: PlatformCommand) -> None:
        if self.trouble:
            raise self.trouble.pop(0)
        die("before")
        with Path(os.environ[DONE_AT]).open("a") as file:
            file.write(f"{command.kind} {command.submission_id} {command.key} {command.amount}\n")
        die("after")

    def approve_all(self, submissions: Sequence[Submission]) -> None:
        if self.trouble:
            raise self.trouble.pop(0)
        with Path(os.environ[DONE_AT]).open("a") as file:
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
    if os.environ.get(DIES) == when:
        os.kill(os.getpid(), signal.SIGKILL)


def stand_in(monkeypatch, file: Path, class_name: str = "StandIn") -> None:
    """Let the platform stand in for Prolific, with what it did in `file`."""
    monkeypatch.setenv(DONE_AT, str(file))
    monkeypatch.setitem(platforms.PLATFORMS, Platform.PROLIFIC, f"{__name__}.{class_name}")
    StandIn.trouble, StandIn.paused = [], []


def done() -> Counter[str]:
    """Return how often each thing was done, such as "bonus 3 bonus:1 150"."""
    file = Path(os.environ[DONE_AT])
    return Counter(file.read_text().splitlines()) if file.exists() else Counter()


def payments() -> Counter[tuple[int, str]]:
    """Return how often each bonus was paid, by the submission's id and the key."""
    lines = Counter({line: n for line, n in done().items() if line.startswith("bonus ")})
    return Counter({(int(line.split()[1]), line.split()[2]): n for line, n in lines.items()})


def complete_place(
    panel: Panel,
    person: str = "ada",
    *,
    seconds: tuple[float | None, ...] = (),
    annotator: Annotator | None = None,
    session: str = "",
) -> Submission:
    """Let a person enter, judge so many statements in so many seconds each, and complete the place.

    annotator: as whom they judged in another place.
    """
    submission = enter(panel, person, session or f"{person}-session", timezone.now())
    submission.annotator = annotator or join_round(panel.round, place_size=max(1, len(seconds)))
    submission.save()
    left = list(seconds)
    while left and (batch := next_batch(submission.annotator, timezone.now())):
        for task in batch[: len(left)]:
            submit_judgment(submission.annotator, Answer(task.pk, "true", uuid4(), left.pop(0)), timezone.now())
    complete(submission, timezone.now())
    return submission
