"""Warnings of harvests that are probably noise: shown wherever the harvest is used, and confirmed before a round."""

import json
import re
from contextlib import nullcontext

import pytest
from django.core.management import call_command
from django.urls import reverse

from annotation.models import Round
from annotation.rounds.services import clone_round, create_draft, edit_draft, open_draft, open_round
from evaluation.evidence.rows import conduct_facts
from evaluation.reports.document import report_tables
from evaluation.reports.files import write_report
from evaluation.reports.sections.rates import relation_table
from evaluation.reports.services import create_report
from evaluation.studies.schema import RoundSection
from kgharvest.models import HarvestJob
from kgharvest.tables.latex import latex_of
from tests import factories
from tests.refusals import refused

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("installation_owner")]

NOISE = {"codes": ["probably_noise", "unknown_seed_tuples"], "unknown_seed_tuples": [["wug", "blicket"]]}
UNKNOWN_SEEDS = {**NOISE, "codes": ["unknown_seed_tuples"]}  # the list is sensible, so this is only a notice


def make_noise(**fields) -> HarvestJob:
    relation = factories.make_relation("place_for")
    return factories.make_harvest([("a", "b"), ("c", "d")], relation=relation, summary=NOISE, **fields)


def description(job: HarvestJob, **fields) -> dict:
    return {"name": "pilot", "cells": [{"job": job.pk, "n": 2}], "judgments_per_task": 1, **fields}


def test_page_and_database_use_the_same_rule():
    jobs = [factories.make_harvest_job("succeeded", summary=summary) for summary in ({}, UNKNOWN_SEEDS, NOISE)]

    assert [job.noise_warning is not None for job in jobs] == [False, False, True]
    assert list(HarvestJob.objects.probably_noise()) == jobs[2:]


def test_at_most_five_unknown_seed_tuples_are_named():
    seeds = [[f"head {n}", f"tail {n}"] for n in range(6)]

    warning = factories.make_harvest_job(summary=NOISE | {"unknown_seed_tuples": seeds}).noise_warning

    assert warning["text"].endswith("head 4, tail 4; ....")
    assert warning["unknown_seed_tuples"] == seeds


@pytest.mark.parametrize(
    "place",
    [
        *("harvests", "harvest", "relation", "launch", "launch form", "knowledge", "tuple"),
        *("draft", "round form", "plan", "round", "report"),
    ],
)
def test_warning_is_shown_wherever_the_harvest_is_used(researcher_client, researcher, enqueued, place):
    job = make_noise(launch=factories.make_launch())
    draft_or_round = None
    if place in ("draft", "round", "report"):
        draft_or_round = open_round(description(job, confirm_noise=True), researcher)
        if place == "draft":
            draft_or_round = clone_round(draft_or_round, researcher)
    urls = {
        "harvests": lambda: reverse("kgharvest:harvest_list"),
        "harvest": job.get_absolute_url,
        "relation": job.relation.get_absolute_url,
        "launch": job.launch.get_absolute_url,
        "knowledge": lambda: reverse("kgharvest:tuple_list"),
        "tuple": lambda: job.tuples.first().knowledge_tuple.get_absolute_url(),
        "round form": lambda: f"{reverse('annotation:round_new')}?job={job.pk}",
    }
    if place == "launch form":
        form = {"relations": [job.relation_id], "models": ["embedded"], "settings": ["multi"], "max_entity_tokens": 2}
        researcher_client.post(reverse("kgharvest:harvest_new"), form)
        HarvestJob.objects.filter(status="queued").update(status="succeeded", summary=NOISE)
        response = researcher_client.post(reverse("kgharvest:harvest_new"), form | {"estimate": 1})
    elif place == "plan":
        response = researcher_client.post(reverse("annotation:round_plan"), {"jobs": [job.pk], "n": 2} | ROUND_FORM)
    elif place == "report":
        response = researcher_client.get(create_report(draft_or_round, researcher).get_absolute_url())
    else:
        response = researcher_client.get(urls[place]() if place in urls else draft_or_round.get_absolute_url())

    page = response.content.decode()
    assert "noise-warning" in page
    assert "<strong>Warning</strong>" in page
    assert "wug, blicket" in page


ROUND_FORM = {
    "who_can_join": "account",
    "judgments_per_task": 1,
    "layout": "one",
    "batch_size": 10,
    "gold_share": 0,
    "training_size": 0,
    "seed": 0,
    "closes_when": "manual",
    "on_withdrawal": "keep",
    **dict.fromkeys(("ask_language", "ask_country", "ask_age_group", "ask_expertise"), "no"),
}


# Confirmation


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_round_on_noise_needs_a_confirmation_on_its_page(researcher_client, is_confirmed):
    form = {"name": "pilot", "jobs": [make_noise().pk], "n": 2, "action": "open"} | ROUND_FORM

    response = researcher_client.post(
        reverse("annotation:round_new"), form | ({"confirm_noise": "true"} if is_confirmed else {})
    )

    assert Round.objects.filter(status="open").exists() == is_confirmed
    if not is_confirmed:
        page = response.text
        assert page.count('name="confirm_noise"') == 1
        assert page.index("“Use harvests that are probably noise”") < page.index('class="confirm-noise is-marked"')
        assert page.index('name="confirm_noise"') < page.index('name="name"')
        assert "--confirm-noise" not in page


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_draft_on_noise_needs_a_confirmation_to_open(researcher_client, researcher, is_confirmed):
    draft = clone_round(open_round(description(make_noise(), confirm_noise=True), researcher), researcher)
    url = reverse("annotation:round_open", args=[draft.path])

    researcher_client.post(url, {"confirm_noise": "true"} if is_confirmed else {})

    draft.refresh_from_db()
    assert (draft.status, draft.spec.get("confirm_noise")) == (("open", True) if is_confirmed else ("draft", None))


def test_api_answers_a_code_until_the_noise_is_confirmed(researcher_client):
    job = make_noise()
    create, json_body = reverse("annotation:api_rounds"), "application/json"
    draft = researcher_client.post(create, description(job), json_body).json()
    url = reverse("annotation:api_round_open", args=[draft["id"]])

    refused = researcher_client.post(url)
    plan = researcher_client.get(reverse("annotation:api_round_plan", args=[draft["id"]])).json()
    opened = researcher_client.post(url, {"confirm_noise": True}, json_body)

    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "NoiseNotConfirmed")
    assert plan["noise_warnings"] == [job.noise_warning]
    assert opened.json()["status"] == "open"


@pytest.mark.parametrize("option", [[], ["--confirm-noise"]])
def test_command_needs_an_option(tmp_path, capsys, option):
    path = tmp_path / "round.json"
    path.write_text(json.dumps(description(make_noise())))

    call_command("open_round", str(path), "--plan")
    assert "wug, blicket" in capsys.readouterr().out
    with nullcontext() if option else pytest.raises(Exception, match="--confirm-noise"):
        call_command("open_round", str(path), *option)

    assert Round.objects.filter(status="open").exists() == bool(option)
    assert ("wug, blicket" in capsys.readouterr().out) == bool(option)


def test_study_file_has_the_key():
    section = RoundSection(data={"n": 2, "confirm_noise": True})

    assert section.is_valid()
    assert section.validated_data["confirm_noise"] is True


def test_sensible_harvest_with_unknown_seed_tuples_needs_no_confirmation(researcher):
    job = factories.make_harvest([("a", "b"), ("c", "d")], summary=UNKNOWN_SEEDS)

    assert open_round(description(job), researcher).status == "open"


def test_confirmation_is_not_cloned_and_refusal_stores_nothing(researcher):
    round = open_round(description(make_noise(), confirm_noise=True), researcher)
    clone = clone_round(round, researcher)

    with refused("NoiseNotConfirmed"):
        open_draft(clone, researcher)
    assert not clone.strata.exists()


def test_confirmation_applies_only_to_the_confirmed_cells(researcher):
    draft = create_draft(description(make_noise(), confirm_noise=True), researcher)
    edited = edit_draft(draft, draft.spec | {"seed": 1}, researcher)
    assert edited.spec["confirm_noise"] is True

    other = factories.make_harvest([("e", "f"), ("g", "h")], summary=NOISE)
    edited = edit_draft(edited, edited.spec | {"cells": [{"job": other.pk, "n": 2}]}, researcher)

    with refused("NoiseNotConfirmed"):
        open_draft(edited, researcher)


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_form_asks_for_the_confirmation_of_each_selection(researcher_client, researcher, is_confirmed):
    draft = create_draft(description(make_noise(), confirm_noise=True), researcher)
    other = factories.make_harvest([("e", "f"), ("g", "h")], summary=NOISE)
    url = reverse("annotation:round_edit", args=[draft.path])
    [box] = re.findall(r'<input[^>]*name="confirm_noise"[^>]*>', researcher_client.get(url).text)
    assert "checked" not in box

    form = {"name": draft.name, "jobs": [other.pk], "n": 2, "action": "open"} | ROUND_FORM
    researcher_client.post(url, form | ({"confirm_noise": "true"} if is_confirmed else {}))

    draft.refresh_from_db()
    assert draft.status == ("open" if is_confirmed else "draft")


# Reports


def test_report_names_the_cell_only_if_it_has_a_warning(researcher):
    noisy, plain = make_noise(), factories.make_harvest([("e", "f"), ("g", "h")])
    cells = [{"job": job.pk, "n": 2} for job in (noisy, plain)]

    round = open_round(description(noisy, cells=cells, confirm_noise=True), researcher)
    without = open_round(description(plain, name="plain"), researcher)

    cell = {"relation": "place_for", "model": noisy.language_model.name, "setting": "multi"}
    assert conduct_facts(round)["noise_warnings"] == [cell | noisy.noise_warning]
    assert create_report(round, researcher).document["conduct"]["noise_warnings"] == [cell | noisy.noise_warning]
    assert "noise_warnings" not in create_report(without, researcher).document["conduct"]


def test_first_table_marks_the_cell_of_a_noisy_harvest(researcher_client, researcher):
    noisy, plain = make_noise(), factories.make_harvest([("e", "f"), ("g", "h")])
    cells = [{"job": job.pk, "n": 2} for job in (noisy, plain)]
    report = create_report(open_round(description(noisy, cells=cells, confirm_noise=True), researcher), researcher)

    table = relation_table(report.document)
    marks = {row.values[0]: "".join(rates.mark for rates in row.values[1:] if rates) for row in table.rows[:-1]}
    assert marks == {"place_for": "†‡", plain.relation.name: "†"}
    assert [note for note in table.notes if note.startswith("‡")]
    assert r"\ddag{}" in latex_of("pilot", [table])
    assert "is_noise" not in str(report.document)

    rows = re.findall("<tr>.*?</tr>", researcher_client.get(report.get_absolute_url()).text, re.DOTALL)
    marked = [row for row in rows if 'aria-label="Warning' in row]
    assert len(marked) == 1
    assert "place for" in marked[0]


def test_every_file_of_the_report_has_the_warning_next_to_the_accuracy(researcher):
    noisy, plain = make_noise(), factories.make_harvest([("e", "f"), ("g", "h")])
    cells = [{"job": job.pk, "n": 2} for job in (noisy, plain)]
    report = create_report(open_round(description(noisy, cells=cells, confirm_noise=True), researcher), researcher)
    without = create_report(open_round(description(plain, name="plain"), researcher), researcher)
    seeds = noisy.noise_warning["text"].split(": ")[-1]

    for name in ("html", "evidence", "md", "tex", "csv"):
        text = write_report(report, name).decode()
        assert seeds in text, name
        if name in ("html", "evidence"):
            assert text.index(seeds) < text.index("<table"), name
        assert "noise" not in write_report(without, name).decode().partition("</style>")[2], name
    [rates, cells] = [{table.name: table for table in report_tables(report.document)}[n] for n in ("settings", "cells")]
    assert any(seeds in note for note in rates.notes)
    warnings = {record["relation"]: record["warning"] for record in cells.records()}
    assert seeds in warnings["place_for"]
    assert warnings[plain.relation.name] is None
    assert "warning" not in write_report(without, "csv").decode()


def test_harvest_page_has_one_callout(researcher_client):
    job = make_noise()
    type(job.language_model).objects.update(is_demonstrator=True)

    page = researcher_client.get(job.get_absolute_url()).text

    assert page.count('class="callout') == 1
    assert "demonstrator" in page
