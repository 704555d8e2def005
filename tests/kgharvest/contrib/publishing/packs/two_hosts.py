"""What two hosts of one installation do, each in a process of its own: one makes a pack, the other gives it out."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from django.test import Client

from evaluation.models import Report
from kgharvest.contrib.publishing.packs.pack_jobs import queue_pack
from kgharvest.jobs import ledger
from tests.factories import make_researcher
from tests.kgharvest.contrib.publishing.packs.studies import STUDIES


def make_pack() -> None:
    """Print the pack's id and checksum."""
    report = STUDIES["without_judgments"](Path())
    pack = queue_pack(report, make_researcher())
    ledger.run_job(pack.pk)
    pack.refresh_from_db()
    sys.stdout.write(f"{pack.pk} {pack.sha256 or pack.error}\n")


def fetch_pack() -> None:
    """Print the checksum of what is downloaded."""
    report = Report.objects.get()
    pack = report.packs.get()
    client = Client(SERVER_NAME="localhost")
    client.force_login(pack.created_by)
    response = client.get(f"/reports/{report.pk}/pack/{pack.pk}/pack.zip")
    sys.stdout.write(f"{hashlib.sha256(response.getvalue()).hexdigest()}\n")
