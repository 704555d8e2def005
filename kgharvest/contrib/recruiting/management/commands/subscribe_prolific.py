"""`subscribe_prolific WORKSPACE`"""

from django.conf import settings
from django.urls import reverse

from kgharvest.contrib.recruiting.platforms import PlatformRefused
from kgharvest.contrib.recruiting.prolific.client import Client
from kgharvest.contrib.recruiting.prolific.events import STUDY_CHANGED, SUBMISSION_CHANGED
from kgharvest.management.command import DomainCommand


class Command(DomainCommand):
    help = "Subscribe this installation to Prolific events, and confirm the subscription. Idempotent."

    def add_arguments(self, parser):
        parser.add_argument("workspace", help="id of the Prolific workspace")

    def handle(self, *, workspace, **options):
        if not settings.PROLIFIC["webhook_secret"]:
            raise PlatformRefused(
                "Webhook secret missing. Create one at Prolific and set KGHARVEST_PROLIFIC_WEBHOOK_SECRET "
                "(docs/prolific.md)."
            )
        address = settings.ORIGIN + reverse("recruiting:prolific_events")
        if not address.startswith("https://"):
            raise PlatformRefused(f"Prolific requires https, but the URL is {address}. Set KGHARVEST_BASE_URL.")
        client = Client()
        subscribed = {
            subscription["event_type"]
            for subscription in client.subscriptions(workspace)
            if subscription["target_url"] == address and subscription.get("is_enabled")
        }
        for event_type in (SUBMISSION_CHANGED, STUDY_CHANGED):
            if event_type not in subscribed:
                client.subscribe(workspace, event_type, address)
            self.stdout.write(f"{event_type} events are sent to {address}.")
