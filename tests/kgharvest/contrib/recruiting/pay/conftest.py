from __future__ import annotations

import pytest

from kgharvest.contrib.recruiting.models import Panel, Platform
from tests import factories
from tests.kgharvest.contrib.recruiting import panel_factories
from tests.kgharvest.contrib.recruiting.pay.standing_in import stand_in


@pytest.fixture
def make_panel(monkeypatch, tmp_path):
    """Return a factory of published panels on a fake Prolific. With `by_hand`, the platform has no API."""

    def make(*, by_hand: bool = False, n_statements: int = 6, **fields) -> Panel:
        stand_in(monkeypatch, tmp_path / "done", "ByHandStandIn" if by_hand else "StandIn")
        round = fields.pop("round", None) or factories.make_round(n_statements, judgments_per_task=50)
        values = {"name": "panel", "places": 50, "reward": 200, "external_id": "study", **fields}
        return panel_factories.make_panel(round, platform=Platform.PROLIFIC, **values)

    return make


@pytest.fixture
def panel(make_panel, db) -> Panel:
    return make_panel()
