"""Tasks of two hosts of one installation, each run in a separate process: create a pack, and download it."""

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
    """Create a pack and print its id and checksum."""
    report = STUDIES["without_judgments"](Path())
    pack = queue_pack(report, make_researcher())
    ledger.run_job(pack.pk)
    pack.refresh_from_db()
    sys.stdout.write(f"{pack.pk} {pack.sha256 or pack.error}\n")


def fetch_pack() -> None:
    """Download the pack and print its checksum."""
    report = Report.objects.get()
    pack = report.packs.get()
    client = Client(SERVER_NAME="localhost")
    client.force_login(pack.created_by)
    response = client.get(f"/reports/{report.pk}/pack/{pack.pk}/pack.zip")
    sys.stdout.write(f"{hashlib.sha256(response.getvalue()).hexdigest()}\n")
