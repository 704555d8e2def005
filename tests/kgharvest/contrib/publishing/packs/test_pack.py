"""Packs of every kind of report: they verify, are reproducible, and contain no personal data."""

import io
import json
from datetime import timedelta

import pyarrow.parquet
import pytest
from django.utils import timezone

from annotation.invites.services import join_round, make_invites
from annotation.judging.assignment import next_batch
from annotation.models import Annotator, Withdrawal
from annotation.quality.exclusion import exclude_annotator
from annotation.rounds.services import open_draft, open_round
from evaluation.evidence.rows import rows_of_round
from evaluation.reports.services import create_report
from kgharvest.contrib.publishing.packs import pack
from kgharvest.contrib.publishing.packs.archive import zipped
from kgharvest.contrib.publishing.packs.pack import pack_files
from kgharvest.contrib.publishing.packs.row_files import values_of_files
from kgharvest.contrib.publishing.packs.verification import verify_contents
from tests.factories import judge, judge_all, make_annotators, make_harvest, make_round, make_user
from tests.kgharvest.contrib.publishing.packs.studies import STUDIES
from tests.kgharvest.contrib.publishing.preregistration.planning import freeze, make_draft
from tests.sampling import only

pytestmark = pytest.mark.django_db
VERIFIED = [
    "incomplete", "with_exclusions", "of_strata", "of_imported_judgments", "of_outside_kgs", "of_clusters",
    "preregistered",
]  # fmt: skip


@pytest.mark.parametrize("name", only(VERIFIED, STUDIES))
def test_packs_of_all_kinds_of_reports_verify(name, pack_of):
    verification = verify_contents(pack_of(name))

    assert list(verification.problems) == []
    assert verification.n_numbers > 20


LARGEST = "with_judge"  # the study with the most figures


@pytest.mark.parametrize("name", only([LARGEST], STUDIES))
def test_pack_with_figures_verifies_and_is_reproducible(name, tmp_path, monkeypatch):
    report = STUDIES[name](tmp_path)
    report.refresh_from_db()

    files = pack_files(report)

    figures = [file for file in files if file.path.startswith("figures/")]
    assert list(verify_contents({file.path: file.content for file in files}).problems) == []
    # Drawing twice is slow, and test_figures.py already tests it.
    monkeypatch.setattr(pack, "rendered_figures", lambda document: figures)
    with zipped(files, tmp_path) as one, zipped(pack_files(report), tmp_path) as other:
        assert one.read() == other.read()


def test_packs_contain_no_personal_data(researcher):
    """Search for accounts, addresses, guest names, invites, comments, and database ids, also in free text."""
    round = make_round(6, by=researcher, batch_size=6)
    user = make_user("wilhelmina", first_name="Wilhelmina", last_name="Quux", email="quux@example.org")
    [invite] = make_invites(round, 1, timezone.now() + timedelta(days=1))
    annotator = join_round(round, user)
    guest, other = make_annotators(round, 2)
    Annotator.objects.filter(pk=guest.pk).update(name="Prolific 5f3c99")
    for person in (annotator, guest, other):
        for task in next_batch(person, timezone.now()):
            judge(person, task, "true", comment="ask quux@example.org")
    exclude_annotator(other, "Wilhelmina says so; write to quux@example.org", by=researcher)
    report = create_report(round, by=researcher)
    report.refresh_from_db()

    files = pack_files(report)

    secrets = ["wilhelmina", "quux", "5f3c99", "researcher@", invite.token, round.join_token, annotator.token_key]
    secrets += [str(judgment.pk) for judgment in annotator.judgments.all()]
    for file in files:
        content = text_of(file)
        assert [secret for secret in secrets if secret.lower() in content.lower()] == [], file.path
    assert "[name omitted] says so" in next(file.content.decode() for file in files if file.path == "report.json")


def text_of(file) -> str:
    if file.path.endswith(".parquet"):
        return str(pyarrow.parquet.read_table(io.BytesIO(file.content)).to_pylist())
    return file.content.decode("utf-8", "replace")


def test_packs_omit_individual_answers_and_withdrawn_annotators(tmp_path, without_figures):
    report = STUDIES["with_withdrawals"](tmp_path)
    report.refresh_from_db()
    withdrawn = Withdrawal.objects.get().annotator

    texts = {file.path: text_of(file) for file in pack_files(report)}

    assert [path for path, text in texts.items() if "Maltese" in text] == []
    assert "other or not said: 10" in texts["responsible-nlp.md"]
    assert withdrawn.judgments.count() == 6
    assert withdrawn.code not in values_of_files(rows_of_round(report.round, for_files=True))["judgments"]["annotator"]


def test_packs_omit_the_url_of_a_paraphraser():
    endpoint = {"kind": "chat", "model": "some-lm", "base_url": "https://wilhelmina:quux@host.internal/v1"}
    job = make_harvest([("head", "tail")], payload={"spec": {"setting": "multi", "paraphraser": endpoint}})
    round = open_round({"name": "one", "cells": [{"job": job.pk, "n": None}]}, None, job.project)

    [harvest] = rows_of_round(round, for_files=True)["harvests"]["parameters"]

    assert json.loads(harvest) == {"spec": {"setting": "multi", "paraphraser": {"kind": "chat", "model": "some-lm"}}}


def test_packs_omit_names_in_round_names_and_deviations(without_figures):
    """The frozen preregistration keeps its text, because its hash is public."""
    draft = make_draft(judgments_per_task=2)
    draft.name = "pilot_wilhelmina"
    draft.save()
    freeze(draft)
    round = open_draft(draft)
    judge_all(round, *[["true"] * round.n_tasks] * 2)
    person = round.annotators.first()
    Annotator.objects.filter(pk=person.pk).update(user=make_user("wilhelmina"))
    exclude_annotator(person, "Wilhelmina (quux@example.org) guesses")
    report = create_report(round)
    report.refresh_from_db()
    assert "Wilhelmina (quux" in str(report.document["preregistration"]["deviations"])

    files = pack_files(report)

    texts = {file.path: file.content.decode("utf-8", "replace").lower() for file in files}
    assert [path for path, text in texts.items() if "quux" in text] == []
    paths = {path for path, text in texts.items() if "wilhelmina" in text}
    assert paths == {"preregistration.json", "rows/round.json"}
    facts = json.loads(texts["rows/round.json"])
    facts["preregistration"].pop("document")
    assert "wilhelmina" not in str(facts)
