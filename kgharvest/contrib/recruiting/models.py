"""Panels, submissions, the pay ledger, and events from platforms."""

from kgharvest.contrib.recruiting.events.models import PanelEvent
from kgharvest.contrib.recruiting.panels.models import Panel, Platform, Submission
from kgharvest.contrib.recruiting.pay.models import PayEntry, PlatformCommand

__all__ = ["Panel", "PanelEvent", "PayEntry", "Platform", "PlatformCommand", "Submission"]
