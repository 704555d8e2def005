"""Archive of rounds and reports: hidden from lists and choices, with unchanged links, files, and numbers."""

from __future__ import annotations

import pytest
from django.urls import reverse

from annotation.models import Round
from annotation.rounds.services import close_round, pause_round, reopen_round
from evaluation.models import Report
from evaluation.reports.services import create_report
from kgharvest.archive import archive, restore
from kgharvest.errors import DomainError
from kgharvest.events.models import Event
from tests import factories
from tests.api import client_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def round() -> Round:
    round = factories.make_round(2, name="practice")
    factories.judge_all(round, *[["true", "false"]] * 3)
    close_round(round)
    return round


@pytest.mark.parametrize("status", ["draft", "open", "paused"])
def test_only_a_closed_round_can_be_archived(status):
    round = factories.make_round(2)
    Round.objects.filter(pk=round.pk).update(status=status)

    for change in (archive, restore):
        with pytest.raises(DomainError) as refusal:
            change(round)
        assert refusal.value.code == "WrongStatus"
    assert not Round.objects.archived().exists()


def test_archiving_a_round_hides_its_reports_and_restoring_shows_them(round):
    report, archived = create_report(round), create_report(round)
    archive(archived)

    archive(round)
    assert not Round.objects.archived(False).exists()
    assert set(Report.objects.archived()) == {report, archived}

    restore(round)
    assert list(Report.objects.archived(False)) == [report]

    restore(archived)
    assert not Report.objects.archived().exists()


def test_report_of_an_archived_round_cannot_be_restored(round):
    report, archived = create_report(round), create_report(round)
    archive(archived)
    archive(round)

    for hidden in (report, archived):
        with pytest.raises(DomainError) as refusal:
            restore(hidden)
        assert refusal.value.code == "RoundArchived"


def test_reopening_restores_a_round(round):
    archive(round)

    reopen_round(round)

    assert list(Round.objects.archived(False).values_list("status", flat=True)) == ["open"]


def test_each_change_is_recorded_once(round):
    report = create_report(round)
    for change in (archive, archive, restore, restore):
        change(report)
    for change in (archive, archive, restore, restore):
        change(round)

    recorded = Event.objects.order_by("pk").values_list("action", flat=True)
    assert list(recorded)[-4:] == ["report.archived", "report.restored", "round.archived", "round.restored"]


def test_lists_of_api_and_pages_hide_archived_rows(round):
    report, other = create_report(round), factories.make_round(2, name="main")
    researcher = factories.make_researcher()
    api = client_of(researcher)
    before = api.get(f"/api/v1/reports/{report.pk}/").json()

    archived = api.post(f"/api/v1/rounds/{round.pk}/archive/").json()

    assert archived["archived"] is True
    for path, ids in (("rounds", [[other.pk], [round.pk]]), ("reports", [[], [report.pk]])):
        found = [api.get(f"/api/v1/{path}/?archived={flag}").json()["results"] for flag in ("false", "true")]
        assert [[row["id"] for row in rows] for rows in found] == ids
        assert [row["id"] for row in api.get(f"/api/v1/{path}/").json()["results"]] == ids[0]
        assert {row["archived"] for row in found[1]} == {True}
    assert api.get(f"/api/v1/reports/{report.pk}/").json() == before | {"archived": True}


def test_pages_offer_the_filter_and_the_actions(client, round):
    report = create_report(round)
    client.force_login(factories.make_researcher())
    lists = {reverse("annotation:round_list"): round, reverse("evaluation:report_list"): report}
    assert all("Archive" not in client.get(path).text for path in lists)

    client.post(reverse("evaluation:report_archive", args=[report.pk]))
    assert '<button class="button">Restore' in client.get(report.get_absolute_url()).text
    client.post(reverse("annotation:round_archive", args=[round.path]))

    for path, row in lists.items():
        assert row.get_absolute_url() not in client.get(path).text
        assert row.get_absolute_url() in client.get(path, {"archived": "true"}).text
        assert client.get(row.get_absolute_url()).status_code == 200
    compare = reverse("evaluation:compare")
    assert f'value="{report.pk}"' not in client.get(compare).text
    assert f'value="{report.pk}"' in client.get(compare, {"a": report.pk}).text
    client.post(reverse("annotation:round_restore", args=[round.path]))
    assert Round.objects.archived(False).get() == round


def test_the_page_explains_that_an_open_round_must_be_closed(client):
    round = factories.make_round(2)
    pause_round(round)
    client.force_login(factories.make_researcher())

    page = client.post(reverse("annotation:round_archive", args=[round.path]), follow=True).text

    assert "can be archived" in page
