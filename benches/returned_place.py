"""Time until a place is free after Prolific reports that its submission was returned.

    python benches/returned_place.py [--submissions 1000] [--returned 50] [--workers]

Receives events at the web address and handles them in this process. Measures the time to answer an event, and from then
until another participant has taken the place. With --workers, a separate worker handles the events, woken by the
filesystem broker. Passes if each takes under a second, with 1,000 submissions.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.installation import ROOT, migrate, set_up_django


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--submissions", type=int, default=1000)
    parser.add_argument("--returned", type=int, default=50)
    parser.add_argument("--workers", action="store_true")
    arguments = parser.parse_args()

    from tests.kgharvest.contrib.recruiting.prolific.fake_prolific import SECRET, TOKEN, serving

    with serving() as fake:
        set_up_django(
            KGHARVEST_PROLIFIC_TOKEN=TOKEN, KGHARVEST_PROLIFIC_URL=fake.url, KGHARVEST_PROLIFIC_WEBHOOK_SECRET=SECRET
        )
        migrate()
        panel = full_panel(fake, arguments.submissions)
        worker = start_worker() if arguments.workers else None
        try:
            answered, freed = zip(
                *(return_one(fake, panel, number, worker) for number in range(arguments.returned)), strict=True
            )
        finally:
            if worker:
                worker.terminate()
                worker.wait()
    for step, seconds in (("answer an event", answered), ("then free its place", freed)):
        print(f"{step}: median {statistics.median(seconds):.3f} s, longest {max(seconds):.3f} s")


def full_panel(fake, n: int):
    """Create a published panel with all its places taken."""
    from django.utils import timezone

    from kgharvest.contrib.recruiting.models import Panel
    from kgharvest.contrib.recruiting.panels.services import enter
    from kgharvest.contrib.recruiting.platforms import platform_of
    from tests import factories
    from tests.kgharvest.contrib.recruiting.panel_factories import make_panel

    panel = make_panel(
        factories.make_round(),
        platform="prolific",
        places=n,
        reward=150,
        participant_parameter="PROLIFIC_PID",
        study_parameter="STUDY_ID",
        session_parameter="SESSION_ID",
        platform_options={"title": "Title", "description": "Description"},
        reconciled_at=timezone.now(),
    )
    Panel.objects.filter(pk=panel.pk).update(external_id=platform_of(panel).publish())
    panel.refresh_from_db()
    for _ in range(n):
        submission, _ = fake.arrive(panel.external_id)
        enter(panel, submission.participant, submission.id, timezone.now())
    return panel


def start_worker() -> subprocess.Popen:
    command = [sys.executable, "-m", "celery", "-A", "kgharvest", "worker", "--loglevel", "ERROR", "--queues", "urgent"]
    worker = subprocess.Popen(command, cwd=ROOT)
    time.sleep(10)  # until it accepts messages
    return worker


def return_one(fake, panel, number: int, worker) -> tuple[float, float]:
    """Return the seconds until the event is answered, and from then until another participant has the place."""
    from django.test import Client
    from django.utils import timezone

    from kgharvest.contrib.recruiting.panels.services import enter
    from kgharvest.contrib.recruiting.prolific.events import outbox

    fake.give_back(list(fake.submissions.values())[number])
    headers = {name: value for name, value in fake.headers(fake.events[-1]).items() if name != "Content-Type"}
    begun = time.perf_counter()
    answer = Client(HTTP_HOST="localhost").post(
        "/recruiting/prolific/events/", fake.events[-1].body, content_type="application/json", headers=headers
    )
    assert answer.status_code == 204
    answered = time.perf_counter()
    newcomer, _ = fake.arrive(panel.external_id)
    while True:
        if worker is None and (claimed := outbox.claim(timezone.now())):
            outbox.send(claimed)
        if panel.submissions.holding_places().count() < panel.places:
            break
        time.sleep(0.002)
    enter(panel, newcomer.participant, newcomer.id, timezone.now())
    return answered - begun, time.perf_counter() - answered


if __name__ == "__main__":
    main()
