"""Pages for creating rounds: form, plan, draft, preview, and gold statements."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from annotation.gold.candidates import decide_on_gold, gold_candidates
from annotation.judges.models import JudgeAnswer
from annotation.models import Annotator, GoldDecision, JudgmentTask, Limits, Round, Stratum
from annotation.rounds import draft_views
from annotation.rounds.forms import NOT_ON_PAGE, RoundForm
from annotation.rounds.models import OPTIONS
from annotation.rounds.serializers import RoundSerializer, example
from annotation.rounds.services import close_due_rounds, create_draft, edit_draft, open_draft
from kgharvest.events.models import Event
from kgharvest.models import Job, ProjectMember, RelationSet, Role
from tests.annotation.gold.test_gold import SEEDS, confirm
from tests.factories import (
    judge_all,
    judging_page,
    make_harvest,
    make_judge_answer,
    make_judge_run,
    make_language_model,
    make_member,
    make_project,
    make_relation,
    make_researcher,
    make_round,
    make_user,
)

pytestmark = pytest.mark.django_db

PILOT = "/projects/default/rounds/pilot/"

HUNDRED = [(f"head {n}", f"tail {n}") for n in range(100)]


@pytest.fixture
def harvest():
    return make_harvest(HUNDRED, relation=make_relation("goes_with", seed_tuples=SEEDS))


@pytest.fixture
def draft(harvest, researcher):
    document = {"name": "pilot", "cells": [{"job": harvest.pk, "n": 20}]}
    return create_draft(document, researcher)


# Form


def test_four_fields_create_a_draft(researcher_client, harvest):
    fields = {"name": "new-one", "jobs": [harvest.pk], "n": 5, "who_can_join": "account"}

    response = researcher_client.post("/rounds/new/", fields)

    assert response.url == "/projects/default/rounds/new-one/"
    assert (Round.objects.get().status, Round.objects.get().judgments_per_task) == ("draft", 3)
    assert not JudgmentTask.objects.exists()


def test_four_fields_open_a_round(researcher_client, harvest):
    fields = {"name": "new-one", "jobs": [harvest.pk], "n": 5, "who_can_join": "link", "action": "open"}

    researcher_client.post("/rounds/new/", fields)

    assert (Round.objects.get().status, Round.objects.get().n_tasks) == ("open", 5)


def test_form_stores_every_field_in_the_round(researcher_client, harvest):
    fields = {
        "name": "full", "jobs": [harvest.pk], "n": 12, "cut": "top:60", "strata": "1, 11, 31",
        "judgments_per_task": 3, "third_only_if_split": "on", "layout": "page", "batch_size": 5,
        "gold_share": 10, "training_size": 4, "instructions": "Judge.", "consent": "I agree.",
        "who_can_join": "link", "max_per_annotator": 50, "closes_when": "date",
        "closes_at": "2030-01-31T18:00", "include_sensitive": "on",
        "gold_accuracy": 0.7, "median_seconds": 1.5,
    }  # fmt: skip

    researcher_client.post("/rounds/new/", fields)

    round = Round.objects.get()
    assert round.spec["cells"] == [{"job": harvest.pk, "n": 12, "cut": "top:60", "strata": [1, 11, 31]}]
    assert (round.third_only_if_split, round.layout, round.batch_size) == (True, "page", 5)
    assert (round.gold_share, round.training_size, round.max_per_annotator) == (0.1, 4, 50)
    assert (round.instructions, round.consent, round.who_can_join) == ("Judge.", "I agree.", "link")
    assert round.spec["limits"] == {"gold_accuracy": 0.7, "median_seconds": 1.5}
    assert (round.closes_when, f"{round.closes_at:%Y-%m-%d %H:%M}") == ("date", "2030-01-31 18:00")
    form = researcher_client.get("/projects/default/rounds/full/edit/").context["form"]
    assert (form["strata"].value(), form["median_seconds"].value()) == ("1, 11, 31", 1.5)


@pytest.mark.parametrize("stored", [{"takes_guests": True}, {"who_can_join": "invite"}])
def test_form_keeps_options_that_are_not_on_the_page(researcher_client, draft, harvest, stored):
    """Saving the unchanged form changes no option, and a changed field does not reset the others."""
    cell = {"job": harvest.pk, "n": 20, "cut": "top:50", "strata": 2, "allocation": "proportional"}
    options = {
        "name": "pilot", "seed": 7, "dominance_cap": 0.4, "max_per_annotator": 9, **stored,
        "limits": {"gold_accuracy": 0.7, "n_gold": 5, "longest_run": 40},
        "relation_instructions": {"goes_with": "As a rule."}, "ask_country": "required", "closes_when": "complete",
    }  # fmt: skip
    edit_draft(draft, options | {"cells": [cell]})
    form = researcher_client.get(f"{PILOT}edit/").context["form"]
    data = browser_form_data(form) | {"jobs": [harvest.pk]}

    researcher_client.post(f"{PILOT}edit/", data)
    draft.refresh_from_db()
    saved = draft.spec
    researcher_client.post(f"{PILOT}edit/", data | {"n": 5, "gold_accuracy": ""})
    draft.refresh_from_db()

    assert not form.fields.keys() & {"seed", "allocation", "dominance_cap", "n_gold", "longest_run"}
    assert saved == options | {"cells": [cell]}
    changed = {"cells": [cell | {"n": 5}], "limits": {"n_gold": 5, "longest_run": 40}}
    assert draft.spec == options | changed


def test_groups_of_fields_are_short_and_cover_every_field():
    names = [name for group in RoundForm.GROUPS.values() for name in group]

    assert max(map(len, RoundForm.GROUPS.values())) <= 7
    assert {*names, "name", "jobs", "n", "who_can_join", "confirm_noise", *RoundForm.PLAN} == RoundForm().fields.keys()
    assert len(names) == len(set(names))


def open_field_groups(response) -> list[str]:
    return [heading for heading, _, is_open in response.context["form"].groups() if is_open]


def browser_form_data(form, **changed) -> dict:
    """Return the form data a browser would send: every field, with CRLF line ends."""
    values = {name: form[name].value() for name in form.fields} | changed
    data = {name: "" if value is None else str(value) for name, value in values.items() if value is not False}
    return {name: value.replace("\n", "\r\n") for name, value in data.items()}


def test_form_expands_groups_with_errors_or_changes(researcher_client, harvest):
    empty = researcher_client.get("/rounds/new/")
    data = browser_form_data(empty.context["form"], name="a name", cut="top:9", closes_when="date", batch_size=0)

    refused = researcher_client.post("/rounds/new/", data | {"jobs": [harvest.pk]})

    assert open_field_groups(empty) == []
    assert open_field_groups(refused) == ["Sample", "Judgments", "Closing"]
    assert open_field_groups(researcher_client.post("/rounds/new/", data | {"action": "plan"})) == open_field_groups(
        refused
    )


def test_edit_form_expands_groups_with_non_default_values(researcher_client, draft, harvest):
    edit_draft(draft, draft.spec | {"consent": "You agree.", "limits": {"median_seconds": 9}})

    page = researcher_client.get(f"{PILOT}edit/")
    assert open_field_groups(page) == ["Instructions", "People"]
    assert page.context["is_advanced"]


def test_draft_page_shows_limits(researcher_client, draft):
    edit_draft(draft, draft.spec | {"limits": {"longest_run": 9}})

    assert "<dd>more than 9 equal labels in a row</dd>" in researcher_client.get(PILOT).text


def test_default_instructions_are_stored_as_empty(researcher_client, harvest):
    form = researcher_client.get("/rounds/new/").context["form"]

    researcher_client.post("/rounds/new/", browser_form_data(form, name="pilot") | {"jobs": [harvest.pk]})

    assert Round.objects.get().instructions == ""


def test_form_filter_keeps_selected_harvests_and_values(researcher_client, harvest):
    other = make_harvest(HUNDRED, relation=make_relation("part_of"), setting="human")

    response = researcher_client.post(
        "/rounds/new/", {"action": "filter", "jobs": [harvest.pk], "setting": "human", "name": "kept"}
    )

    assert [(job.pk, chosen) for job, chosen in response.context["jobs"]] == [(harvest.pk, True), (other.pk, False)]
    assert 'value="kept"' in response.text
    assert "This field is required" not in response.text


def test_form_lists_newest_harvest_of_each_cell(researcher_client, harvest):
    newer = make_harvest(HUNDRED, relation=harvest.relation, language_model=harvest.language_model)

    assert [job for job, _ in researcher_client.get("/rounds/new/").context["jobs"]] == [newer]


def test_form_query_count_is_constant_for_many_harvests(researcher_client, django_assert_max_num_queries):
    language_model = make_language_model()
    for number in range(30):
        make_harvest(HUNDRED[:1], relation=make_relation(f"r{number}"), language_model=language_model)

    with django_assert_max_num_queries(14):
        researcher_client.get("/rounds/new/")


def test_plan_shows_workload_and_interval_width(researcher_client, harvest):
    fields = {"jobs": [harvest.pk], "n": 25, "who_can_join": "link", "judgments_per_task": 2}

    page = researcher_client.post("/rounds/plan/", fields).text

    assert "<dd>25</dd>" in page
    assert "<dd>50</dd>" in page
    assert "± 16.1 points" in page  # Wilson at .5 for 25 of 100, an effective n of 33.3: 0.339 to 0.661
    assert not Round.objects.exists()


def test_plan_shows_detectable_difference_of_comparisons(researcher_client):
    """Plan for seven relations and two settings with two of three tuples judged."""
    lm, jobs = make_language_model("lm"), []
    for number in range(7):
        relation = make_relation(f"r{number}")
        for setting in ("human", "multi"):
            tuples = [(f"{setting} {rank}", "x") for rank in range(3)]
            jobs.append(make_harvest(tuples, relation=relation, setting=setting, language_model=lm).pk)

    page = researcher_client.post("/rounds/plan/", {"jobs": jobs, "n": 2, "who_can_join": "link"}).text

    # Student, 6 degrees: (t(.975) + t(.8)) sqrt(2 * .25 * (1 / 2 - 1 / 3)) / sqrt(7) = (2.447 + .906) * .1091.
    assert "lm: human and multi" in page
    assert "36.6 points" in page
    assert "One comparison: its p must be below .05. A test over relations requires at least 6 relations." in page


def test_infeasible_plan_shows_reason(researcher_client, harvest):
    page = researcher_client.post("/rounds/plan/", {"jobs": [harvest.pk], "n": 500, "who_can_join": "link"}).text

    assert "has 100 tuples. Enter at most 100 statements" in page
    assert "cells[0]" not in page


def test_form_shows_project_field_for_several_projects_and_remembers_choice(researcher_client, researcher, harvest):
    assert researcher_client.get("/rounds/new/").context["form"]["project"].is_hidden
    animals = make_project("Animals")
    ProjectMember.objects.create(project=animals, user=researcher, role=Role.RESEARCHER)

    data = {"name": "here", "project": "default", "jobs": [harvest.pk], "n": 3, "who_can_join": "link"}
    researcher_client.post("/rounds/new/", data)
    field = researcher_client.get("/rounds/new/").context["form"]["project"]
    researcher_client.post("/rounds/new/", data | {"name": "there", "project": "animals"})

    assert [label for _, label in field.field.choices] == ["Animals", "Default"]
    assert field.value() == "default"
    assert dict(Round.objects.values_list("name", "project__slug")) == {"here": "default", "there": "animals"}
    assert researcher_client.get("/rounds/new/").context["form"]["project"].value() == "animals"


def test_failed_opening_of_draft_saves_form_values(researcher_client, draft, harvest):
    form = researcher_client.get(f"{PILOT}edit/").context["form"]

    page = researcher_client.post(
        f"{PILOT}edit/", browser_form_data(form, n=500, batch_size=3) | {"jobs": [harvest.pk], "action": "open"}
    )

    draft.refresh_from_db()
    assert "Enter at most 100 statements" in page.text
    assert (draft.status, draft.batch_size) == ("draft", 3)


def test_form_lists_the_allowed_characters_of_a_name():
    errors = RoundForm({"name": "my round"}).errors["name"]

    assert "hyphens" in errors[0]
    assert "slug" not in errors[0]


def test_form_shows_service_errors(researcher_client):
    job = make_harvest([("dog", "swim")])
    fields = {"name": "new-one", "jobs": [job.pk], "n": 5, "who_can_join": "link", "action": "open"}

    page = researcher_client.post("/rounds/new/", fields).text

    assert "Enter at most 1 statement," in page
    assert not Round.objects.exists()


def test_form_serializer_and_example_cover_every_round_option():
    fields = RoundForm().fields

    for name in (*OPTIONS, *Limits.OPTIONS):
        assert name in (*fields, *NOT_ON_PAGE, "source")
    assert set(OPTIONS) <= RoundSerializer().fields.keys()
    assert all(f'"{name}": ' in example() for name in OPTIONS)


# Drafts


def test_draft_page_shows_plan_and_stores_nothing(researcher_client, draft):
    page = researcher_client.get(PILOT).text

    assert '<td class="num" data-unit="sampled">20</td><td class="num" data-unit="in the population">100</td>' in page
    assert "Open round" in page
    assert not Stratum.objects.exists()


def test_round_list_shows_no_statement_count_for_drafts(researcher_client, draft):
    page = researcher_client.get("/rounds/").text

    assert "not drawn yet" in page
    assert "not opened yet" in page
    assert 'data-unit="statements"' not in page


def test_draft_page_query_count_per_relation_is_constant(researcher_client, draft, django_assert_max_num_queries):
    jobs = [make_harvest(HUNDRED[:5], relation=make_relation(seed_tuples=SEEDS)) for _ in range(8)]
    edit_draft(draft, {"name": "pilot", "cells": [{"job": job.pk, "n": 2} for job in jobs]})

    with django_assert_max_num_queries(12 + 2 * len(jobs)):
        researcher_client.get(PILOT)


def test_draft_without_enough_gold_links_to_gold_page(researcher_client, draft, harvest):
    edit_draft(draft, draft.spec | {"gold_share": 0.1})

    page = researcher_client.get(PILOT).text

    assert "This draft cannot be opened yet." in page
    assert f"/rounds/gold/{harvest.relation_id}/" in page
    assert "Open round" not in page


def test_preview_shows_first_statements_and_stores_nothing(researcher_client, draft):
    first, page = (researcher_client.get(f"{PILOT}preview/", {"n": n}) for n in (1, 2))

    assert page.context["rows"][0]["parts"] != first.context["rows"][0]["parts"]
    assert "2 of the first 10" in page.text
    assert (JudgmentTask.objects.count(), Annotator.objects.count()) == (0, 0)


def test_preview_shows_first_statement_of_opened_round(researcher_client, draft):
    [row] = researcher_client.get(f"{PILOT}preview/").context["rows"]

    researcher_client.post(f"{PILOT}open/")

    assert draft.tasks.get(position=0).parts == row["parts"]


def judging_markup(page: str) -> str:
    """Return the judging part of a page without scripts and statement-specific values."""
    judging = page[page.index('<div class="judge"') : page.index("<dialog")]
    return re.sub(
        r'value="[^"]*"|data-(outbox|row)="[^"]*"|\?task=\w+|\b(\d|[0-9a-f]{16})-|data-saved( hidden)?', "", judging
    )


@pytest.mark.parametrize("layout", ["one", "page"])
@pytest.mark.parametrize("takes_guests", [True, False])
def test_preview_has_same_markup_as_judging_page(researcher, researcher_client, layout, takes_guests):
    harvest = make_harvest([("head", "tail")], relation=make_relation("goes_with"))
    document = {"name": "pilot", "cells": [{"job": harvest.pk, "n": 1}]}
    draft = create_draft(document | {"layout": layout, "takes_guests": takes_guests}, researcher)
    previewed = researcher_client.get(f"{PILOT}preview/").text

    researcher_client.post(f"{PILOT}open/")
    client = Client()
    if not takes_guests:
        client.force_login(make_user())
    client.post(f"/join/{draft.join_token}/", {"name": "Ada"})

    assert judging_markup(previewed) == judging_markup(client.get(judging_page()).text)


def test_preview_shows_consent_and_relation_instructions(researcher_client, draft):
    edit_draft(draft, draft.spec | {"consent": "You *agree*.", "relation_instructions": {"goes_with": "As a rule."}})

    page = researcher_client.get(f"{PILOT}preview/").text

    assert "<p>You <em>agree</em>.</p>" in page
    assert "<p>As a rule.</p>" in page


def test_page_layout_preview_query_count_is_constant(researcher_client, draft, django_assert_max_num_queries):
    edit_draft(draft, draft.spec | {"layout": "page", "batch_size": 20})

    with django_assert_max_num_queries(14):
        assert len(researcher_client.get(f"{PILOT}preview/").context["rows"]) == 20


def test_draft_can_be_edited_as_json(researcher_client, draft, harvest):
    text = f'{{"name": "pilot", "cells": [{{"job": {harvest.pk}, "n": 3}}], "seed": 9}}'

    researcher_client.post(f"{PILOT}edit/?json", {"description": text})

    draft.refresh_from_db()
    assert (draft.seed, draft.spec["cells"]) == (9, [{"job": harvest.pk, "n": 3}])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Invalid JSON at line 1, column 2"),
        ("[" * 100_000, "Nested too deeply"),
        ("{}", "name is missing. See open_round --help"),
    ],
)
def test_invalid_json_description_shows_error(researcher_client, draft, text, message):
    assert message in researcher_client.post(f"{PILOT}edit/?json", {"description": text}).text


def test_draft_unsupported_by_form_is_edited_as_json(researcher_client, draft, harvest):
    named = {"relation": "goes_with", "model": harvest.language_model.name, "setting": "multi", "n": 2}
    edit_draft(draft, {"name": "pilot", "cells": [named]})

    assert "Edit draft as JSON" in researcher_client.get(f"{PILOT}edit/").text


def relation_instructions_of(draft) -> dict:
    draft.refresh_from_db()
    return draft.spec.get("relation_instructions", {})


def test_relation_instructions_can_be_edited_on_a_page(researcher_client, draft, harvest):
    page = f"{PILOT}instructions/{harvest.relation.pk}/"
    default = researcher_client.get(page).context["form"]["instructions"].value()

    researcher_client.post(page, {"instructions": "Of *this* year."})

    assert default.startswith("For example:")
    assert relation_instructions_of(draft) == {harvest.relation.path: "Of *this* year."}
    assert "<p>Of <em>this</em> year.</p>" in researcher_client.get(PILOT).text


def test_concurrent_edits_of_two_relation_instructions_are_both_saved(researcher_client, draft, harvest, monkeypatch):
    other = make_harvest(HUNDRED, relation=make_relation("part_of"))
    edit_draft(draft, draft.spec | {"cells": [{"job": harvest.pk, "n": 2}, {"job": other.pk, "n": 2}]})
    read = draft_views.default_instructions

    def while_another_writes(draft, pk, by):
        monkeypatch.setattr(draft_views, "default_instructions", read)
        researcher_client.post(f"{PILOT}instructions/{other.relation_id}/", {"instructions": "Of parts."})
        return read(draft, pk, by)

    monkeypatch.setattr(draft_views, "default_instructions", while_another_writes)
    researcher_client.post(f"{PILOT}instructions/{harvest.relation_id}/", {"instructions": "Of this year."})

    assert relation_instructions_of(draft) == {harvest.relation.path: "Of this year.", other.relation.path: "Of parts."}


def test_instructions_sent_after_opening_are_rejected(researcher_client, draft, harvest, monkeypatch):
    read = draft_views.default_instructions

    def while_it_opens(draft, pk, by):
        opened = read(draft, pk, by)
        open_draft(Round.objects.get(pk=draft.pk))
        return opened

    monkeypatch.setattr(draft_views, "default_instructions", while_it_opens)
    page = f"{PILOT}instructions/{harvest.relation_id}/"
    answer = researcher_client.post(page, {"instructions": "Of this year."}, follow=True)

    assert "is not a draft" in answer.text


@pytest.mark.parametrize("text", ["", "usual"])
def test_default_instructions_are_restored(researcher_client, draft, harvest, text):
    page = f"{PILOT}instructions/{harvest.relation.pk}/"
    default = researcher_client.get(page).context["form"]["instructions"].value()
    edit_draft(draft, draft.spec | {"relation_instructions": {"goes_with": "Of this year."}})

    researcher_client.post(page, {"instructions": default.replace("\n", "\r\n") if text else ""})

    assert relation_instructions_of(draft) == {}


def test_form_keeps_relation_instructions(researcher_client, draft, harvest):
    edit_draft(draft, draft.spec | {"relation_instructions": {"goes_with": "Of this year."}})
    form = researcher_client.get(f"{PILOT}edit/").context["form"]

    researcher_client.post(f"{PILOT}edit/", browser_form_data(form, batch_size=9) | {"jobs": [harvest.pk]})

    assert relation_instructions_of(draft) == {"goes_with": "Of this year."}
    assert draft.batch_size == 9


def test_instructions_for_deleted_relation_show_error(researcher_client, draft, harvest):
    edit_draft(draft, draft.spec | {"relation_instructions": {"gone": "Of this year."}})

    page = researcher_client.get(f"{PILOT}instructions/{harvest.relation_id}/", follow=True)

    assert page.redirect_chain[-1][0] == PILOT
    assert "There is no relation &#x27;gone&#x27;" in page.content.decode()


def test_instructions_page_requires_a_relation_of_the_draft(researcher_client, draft):
    other = make_relation("other")

    assert researcher_client.get(f"{PILOT}instructions/{other.pk}/").status_code == 404


def test_draft_is_deleted_after_confirmation(researcher_client, draft):
    assert "Delete draft pilot?" in researcher_client.get(f"{PILOT}delete/").text

    researcher_client.post(f"{PILOT}delete/")

    assert not Round.objects.exists()


def test_draft_deletion_requires_current_number_of_judge_answers(researcher_client, draft, harvest):
    run = make_judge_run(draft, "gpt", prompt_price=2)
    make_judge_answer(run, harvest.tuples.first().knowledge_tuple, "true", cost="0.0125")
    page = researcher_client.get(f"{PILOT}delete/").text
    assert "1 answer, which cost 0.0125" in page
    assert 'name="judge_answers" value="1"' in page

    make_judge_answer(run, harvest.tuples.last().knowledge_tuple, "true")  # added after the page was rendered
    refused = researcher_client.post(f"{PILOT}delete/", {"judge_answers": "1"}, follow=True).text
    assert "2 answers (cost 0.0125)" in refused
    assert JudgeAnswer.objects.count() == 2

    researcher_client.post(f"{PILOT}delete/", {"judge_answers": "2"})
    assert not Round.objects.exists()
    assert not Job.objects.filter(pk=run.pk).exists()
    entry = Event.objects.get(action="judge_run.deleted")
    assert (entry.known_facts["run"], entry.known_facts["n_answers"]) == ("gpt", 2)


def test_draft_with_active_judge_run_is_not_deleted(researcher_client, draft):
    make_judge_run(draft, "gpt", status=Job.Status.QUEUED)

    assert "is still in progress. Cancel it" in researcher_client.get(f"{PILOT}delete/").text
    researcher_client.post(f"{PILOT}delete/")

    assert Round.objects.exists()


def test_round_page_shows_half_width_and_closing_threshold(researcher_client, harvest):
    fields = {"name": "pilot", "jobs": [harvest.pk], "n": 4, "who_can_join": "account"}
    fields |= {"closes_when": "narrow", "closes_at_half_width": 5}
    researcher_client.post("/rounds/new/", fields)
    assert "interval half-widths reach ± .05" in researcher_client.get(PILOT).text
    round = open_draft(Round.objects.get())
    assert "undefined until every relation has a verdict" in researcher_client.get(PILOT).text

    judge_all(round, *[["true", "true", "false", "true"]] * 2)
    close_due_rounds(timezone.now())

    assert re.search(r"half-width: ± \.\d{3}, .* are at most ± \.050", researcher_client.get(PILOT).text)


def test_cloning_a_round_creates_a_draft(researcher_client, researcher):
    make_round(3, name="pilot", by=researcher)

    response = researcher_client.post(f"{PILOT}clone/")

    assert response.url == "/projects/default/rounds/pilot-2/"
    assert Round.objects.get(name="pilot-2").status == "draft"


@pytest.mark.parametrize("path", ["", "edit/", "preview/", "delete/"])
def test_draft_of_other_project_returns_404(client, draft, path):
    client.force_login(make_researcher(project=make_project()))

    assert client.get(f"{PILOT}{path}").status_code == 404


@pytest.mark.parametrize("change", ["open", "clone", "delete"])
def test_viewer_cannot_change_draft(client, draft, change):
    client.force_login(make_member(Role.VIEWER))

    assert "Open round" not in client.get(PILOT).text
    assert client.post(f"{PILOT}{change}/").status_code == 403


# Gold statements


def test_gold_page_stores_confirmed_and_rejected_candidates(researcher_client, researcher, harvest):
    path = f"/rounds/gold/{harvest.relation_id}/"
    first, second, third = (candidate["code"] for candidate in researcher_client.get(path).context["candidates"][:3])

    researcher_client.post(path, {first: "false", second: "unsure", third: ""})

    assert sorted(GoldDecision.objects.values_list("is_confirmed", "decided_by")) == [
        (False, researcher.pk),
        (True, researcher.pk),
    ]
    assert not {first, second} & {candidate["code"] for candidate in researcher_client.get(path).context["candidates"]}


def test_gold_decision_is_withdrawn_by_its_author_with_reason(researcher, researcher_client, harvest):
    [decision, _] = confirm(harvest.relation, 2, by=researcher)
    path = f"/rounds/gold/{harvest.relation_id}/withdraw/{decision.pk}/"

    researcher_client.post(path)
    assert GoldDecision.objects.in_force().count() == 2
    page = researcher_client.post(path, {"reason": "it holds in Malta"}, follow=True).text

    decision.refresh_from_db()
    assert GoldDecision.objects.in_force().count() == 1
    assert (decision.withdrawn_by, decision.reason, decision.withdrawn_at is None) == (
        researcher,
        "it holds in Malta",
        False,
    )
    assert "it holds in Malta" in page


def test_researcher_cannot_withdraw_gold_decision_of_another_user(researcher_client, harvest):
    [decision, _] = confirm(harvest.relation, 2, by=make_researcher())
    RelationSet.objects.update(is_shipped=True, project=None)  # decisions of the operator serve every project
    path = f"/rounds/gold/{harvest.relation_id}/"

    page = researcher_client.post(f"{path}withdraw/{decision.pk}/", {"reason": "no"})

    assert page.status_code == 404
    assert "/withdraw/" not in researcher_client.get(path).text
    assert GoldDecision.objects.in_force().count() == 2


def test_gold_list_counts_confirmed_statements(researcher_client, harvest, django_assert_max_num_queries):
    decide_on_gold(
        harvest.relation,
        {candidate.code: number < 3 for number, candidate in enumerate(gold_candidates(harvest.relation)[:5])},
    )

    with django_assert_max_num_queries(8):
        page = researcher_client.get("/rounds/gold/", {"q": "goes"})

    assert [relation.n_false for relation in page.context["page_obj"]] == [3]


@pytest.mark.parametrize("path", ["/rounds/gold/", "/rounds/gold/1/", "/rounds/plan/", f"{PILOT}preview/"])
def test_annotators_cannot_create_rounds(client, draft, path):
    client.force_login(make_user())

    assert client.get(path).status_code == 403
