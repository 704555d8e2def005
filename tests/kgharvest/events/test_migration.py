"""Migration of audit entries and round logs to events. The hash chain stays byte-identical."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from annotation.models import Round
from annotation.rounds.services import pause_round
from kgharvest.audit.verification import Verification
from kgharvest.events.chain import hashed_text, head, seal_events
from kgharvest.events.models import BEFORE_ALL
from kgharvest.events.types import CORE_TYPES
from kgharvest.management.commands.audit import json_lines
from kgharvest.models import Event
from tests.database_copies import KeptState
from tests.kgharvest.old_release import old_release
from tests.postgres import on_postgresql, run_on_postgresql

pytestmark = pytest.mark.slow

OLD = [
    ("auth", "0012_alter_user_first_name_max_length"),
    ("kgharvest", "0034_uploads_to_knowledge_graphs"),
    ("annotation", "0034_submission_browser"),
]
NEW = [("kgharvest", "0035_events"), ("annotation", "0036_round_events_to_events")]
NOW = datetime(2026, 11, 20, 12, 30, 15, 123456, tzinfo=UTC)
N_ENTRIES = 300
# Event kinds of the round log with sample details
DETAILS = {
    "opened": {"n_tasks": 12},
    "joined": {},
    "excluded": {"n_judgments": 3, "reason": "clicks “at random” ☃"},
    "imported": {"n_judgments": 2, "file": "a.csv", "n_rows": 2, "duplicates": "error", "n_duplicates": 0},
    "adjudicated": {"task": 7, "label": "Unjudgeable"},
    "limit_crossed": {"why": "median of 0.5 seconds"},
    "panel_paused": {"panel": "p", "reason": "Somebody asked."},
    "closed": {"n_incomplete": 1},
}


def migrate(targets) -> None:
    MigrationExecutor(connection).migrate(targets)


class OldRows(NamedTuple):
    """Rows before the upgrade: the output of `audit export`, the round log, and the head of the chain."""

    export: str
    log: list[tuple]
    head: tuple[int, str]


def historical_apps():
    return MigrationExecutor(connection).loader.project_state(OLD).apps


class States:
    """Database before and after the upgrade, with a chain of every action and a round log, both with repeated entries.

    The old release becomes the old state; on SQLite, each state is created once for all test processes.
    """

    def __init__(self, folder: Path):
        self._release = old_release(folder)
        self._rows = folder / "before-events.pickle"
        self.old = KeptState(self._make_old, folder / "before-events.sqlite3")
        self.new = KeptState(self._make_new, folder / "after-events.sqlite3")

    def _make_old(self) -> None:
        self._release.enter()
        migrate(OLD)
        apps = historical_apps()
        make_rows(apps)
        entries, lines = apps.get_model("kgharvest", "AuditEntry").objects, apps.get_model("annotation", "RoundEvent")
        last = entries.order_by("number").last()
        rows = OldRows(export_of(entries), log_of(lines.objects), (last.number, last.hash))
        self._rows.write_bytes(pickle.dumps(rows))

    def _make_new(self) -> None:
        self.old.enter()
        call_command("migrate", verbosity=0)

    def old_rows(self) -> OldRows:
        return pickle.loads(self._rows.read_bytes())


@pytest.fixture
def states(transactional_db, shared_folder):
    yield States(shared_folder)
    if connection.vendor != "sqlite":  # SQLite is restored after each test
        call_command("migrate", verbosity=0)


def make_rows(apps) -> None:
    def objects(model: str, app: str = "kgharvest"):
        return apps.get_model(app, model).objects

    user = objects("User", "auth").create(username="ada")
    objects("Actor").create(code="p-0123456789", user=user)
    project = objects("Project").create(name="Demo", slug="demo")
    round = objects("Round", "annotation").create(project=project, name="pilot", status="open", seed=1, spec={})
    annotator = objects("Annotator", "annotation").create(round=round, code="a-12345678", user=user)
    previous, actions = BEFORE_ALL, ["trail.begun", *(kind.key for kind in CORE_TYPES)]
    for number in range(1, N_ENTRIES + 1):
        entry = apps.get_model("kgharvest", "AuditEntry")(
            number=number,
            at=NOW + timedelta(microseconds=number),
            project_id=project.pk if number % 3 else None,
            actor="p-0123456789" if number % 2 else "",
            action=actions[number % len(actions)],
            subject_type="round",
            subject_id=str(number),
            facts=json.dumps({"round": "pilot ☃", "n_tasks": number}),
            row_hashes=f"gone {number} {BEFORE_ALL}\ngone x{number} {BEFORE_ALL}" if number % 5 else "",
            previous_hash=previous,
        )
        previous = entry.hash = sha256(hashed_text(entry).encode()).hexdigest()
        entry.save(force_insert=True)
    objects("AuditHead").update_or_create(pk=1, defaults={"number": N_ENTRIES, "hash": previous})
    for number, (kind, details) in enumerate([*DETAILS.items()] * 20):
        objects("RoundEvent", "annotation").create(
            round=round,
            kind=kind,
            annotator=annotator if kind in ("joined", "excluded") else None,
            by=user if number % 2 else None,
            at=NOW + timedelta(seconds=number),
            details=details,
        )
    objects("ContentType", "contenttypes").filter(model__in=["event", "auditentry"]).delete()
    objects("ContentType", "contenttypes").create(app_label="kgharvest", model="auditentry")


def export_of(entries) -> str:
    """Return the output of `audit export` before the upgrade."""
    lines = []
    for entry in entries.order_by("number"):
        names = ("number", "at", "project_id", "actor", "action", "subject_type", "subject_id", "facts", "row_hashes")
        line = {name: getattr(entry, name) for name in names}
        line |= {
            "at": entry.at.isoformat(timespec="microseconds"),
            "row_hashes": entry.row_hashes.splitlines(),
            "row_hashes_sha256": sha256(entry.row_hashes.encode()).hexdigest(),
            "previous_hash": entry.previous_hash,
            "hash": entry.hash,
        }
        lines.append(json.dumps(line) + "\n")
    return "".join(lines)


def log_of(round_events) -> list[tuple]:
    rows = round_events.order_by("pk").select_related("by", "annotator")
    return [
        (row.kind, row.at, row.by and row.by.username, row.annotator and row.annotator.code, row.details)
        for row in rows
    ]


def test_upgrade_preserves_chain_and_round_log(states):
    states.new.enter()
    export, log, (number, last_hash) = states.old_rows()
    assert len(export.splitlines()) == N_ENTRIES
    assert len(log) == 20 * len(DETAILS)

    assert "".join(json_lines()) == export
    assert head() == (number, last_hash)
    assert list(Verification()) == []
    output = StringIO()
    call_command("audit", "verify", "--head", f"{number}:{last_hash}", stdout=output)
    assert f"{N_ENTRIES} entries verified" in output.getvalue()
    assert "".join(json_lines()) == export  # lines of the round log are never sealed
    round = Round.objects.get()
    assert log == [
        (event.kind, event.at, event.by and event.by.username, event.annotator, event.details)
        for event in round.events.order_by("pk")
    ]
    assert round.events.filter(kind="excluded").first().history_sentence == (
        "excluded the annotator, 3 judgments no longer counted: clicks “at random” ☃"
    )
    assert Event.objects.audited().count() == N_ENTRIES
    assert [*ContentType.objects.filter(model__in=["event", "auditentry"]).values_list("model", flat=True)] == ["event"]


def test_chain_continues_after_the_upgrade(states):
    states.new.enter()
    round = Round.objects.get()

    pause_round(round)

    assert round.events.first().kind == "paused"
    assert [row.get("kind") for row in map(json.loads, round.events.json_lines())][-2:] == ["closed", "paused"]
    assert seal_events() == 1
    assert Event.objects.sealed().last().number == head().number == N_ENTRIES + 2  # and the new tables
    assert list(Verification()) == []


def test_new_release_seals_after_an_entry_of_the_last_release(states):
    states.new.enter()
    pause_round(Round.objects.get())
    AuditEntry, AuditHead = (historical_apps().get_model("kgharvest", name) for name in ("AuditEntry", "AuditHead"))
    last = head()
    entry = AuditEntry(number=last.number + 1, at=NOW, action="tuple.curated", facts="{}", previous_hash=last.hash)
    entry.hash = sha256(hashed_text(entry).encode()).hexdigest()
    entry.save(force_insert=True)
    AuditHead.objects.update(number=entry.number, hash=entry.hash)

    seal_events()

    assert head().number == N_ENTRIES + 3
    assert list(Verification()) == []


@pytest.mark.exhaustive
def test_the_upgrade_can_be_undone(states):
    states.old.enter()

    migrate(NEW)
    migrate(OLD)

    apps = historical_apps()
    assert export_of(apps.get_model("kgharvest", "AuditEntry").objects) == states.old_rows().export
    assert log_of(apps.get_model("annotation", "RoundEvent").objects) == states.old_rows().log


@on_postgresql
def test_module_passes_on_postgresql():
    run = run_on_postgresql(__file__)

    assert run.returncode == 0, run.stdout
