"""`subscribe_prolific WORKSPACE`"""

from __future__ import annotations

from django.conf import settings
from django.urls import reverse

from kgharvest.contrib.recruiting.platforms import PlatformRefused
from kgharvest.contrib.recruiting.prolific.client import Client
from kgharvest.contrib.recruiting.prolific.events import STUDY_CHANGED, SUBMISSION_CHANGED
from kgharvest.management.command import DomainCommand


class Command(DomainCommand):
    help = "Have Prolific send its events to this installation, and confirm that. Twice is once."

    def add_arguments(self, parser):
        parser.add_argument("workspace", help="id of the workspace at Prolific whose studies it is about")

    def handle(self, *, workspace, **options):
        if not settings.PROLIFIC["webhook_secret"]:
            raise PlatformRefused(
                "There is no secret to check events by; make one at Prolific and let KGHARVEST_PROLIFIC_WEBHOOK_SECRET "
                "be it (docs/prolific.md)."
            )
        address = settings.ORIGIN + reverse("recruiting:prolific_events")
        if not address.startswith("https://"):
            raise PlatformRefused(f"Prolific sends to https only, and this is {address}; set KGHARVEST_BASE_URL.")
        client = Client()
        known = {
            subscription["event_type"]
            for subscription in client.subscriptions(workspace)
            if subscription["target_url"] == address and subscription.get("is_enabled")
        }
        for event_type in (SUBMISSION_CHANGED, STUDY_CHANGED):
            if event_type not in known:
                client.subscribe(workspace, event_type, address)
            self.stdout.write(f"{event_type} goes to {address}.")
