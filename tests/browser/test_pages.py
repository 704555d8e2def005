"""Checks of every page reachable by links, in installations with and without content."""

import pytest
from django.utils import timezone

from annotation.invites.services import join_round
from annotation.judging.assignment import next_batch
from evaluation.models import ScoreEvaluation
from evaluation.reports.services import create_report
from evaluation.scores.facts import ScoredRelation
from evaluation.scores.scorers import document_of, score_samples
from kgharvest.accounts.projects import default_project
from kgharvest.accounts.tokens import create_token
from kgharvest.models import Role
from tests import factories
from tests.browser.screenshots import resize
from tests.browser.visitor import view_name
from tests.kgharvest.contrib.probing.probes.probe_factories import make_probe

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture(params=["anonymous", "annotator", "researcher"])
def person(request):
    """Role name and its user. The user is None for the anonymous role."""
    makers = {"anonymous": lambda: None, "annotator": factories.make_user, "researcher": factories.make_researcher}
    return request.param, makers[request.param]()


@pytest.fixture(params=[pytest.param("empty", marks=pytest.mark.exhaustive), "with content"])
def installation(request, person) -> None:
    if request.param == "with content":
        fill(person)


def fill(person) -> None:
    """Create one object of each kind that has a page, accessible to `person`."""
    role, user = person
    owner = user if role == "researcher" else factories.make_researcher()
    launch = factories.make_launch(created_by=owner)
    factories.make_harvest_job("failed", launch=launch, error="The model folder is gone; name another model.")
    factories.make_harvest_job("queued", launch=launch)
    factories.make_harvest([["שלום עולם", "a" * 200], ["=1+1", 'say "hi", twice']])
    judged = factories.make_round([("vaccine", "measles"), ("seat belt", "injury")], name="judged", by=owner)
    factories.judge_all(judged, ["true", "false"], ["true", "unjudgeable"], ["true", "true"])
    create_report(judged, owner)
    ScoreEvaluation.objects.create(
        kind=ScoreEvaluation.KIND,
        status=ScoreEvaluation.Status.SUCCEEDED,
        language_model=factories.make_language_model(),
        document={"facts": "three", "model": "lm", **small_evaluation()},
    )
    make_probe()
    for name in ("open", "half-judged"):
        round = factories.make_round(12, name=name, by=owner)
        if role == "annotator":
            annotator = join_round(round, user)
    if role == "annotator":
        factories.judge(annotator, next_batch(annotator, timezone.now())[0])


def small_evaluation() -> dict:
    facts = [("Berlin", "Germany"), ("Paris", "France"), ("Rome", "Italy")]
    relation = ScoredRelation("capital_of", (), (), (), facts)
    scorers = {"multi": lambda _, tuples, tick: [entities in facts for entities in tuples]}
    return document_of(score_samples([relation], scorers, seed=0), seed=0)


def start_page(role: str) -> str:
    return "/accounts/login/" if role == "anonymous" else "/"


WIDTH = "document.documentElement.scrollWidth"
MAIN_VIEWS = {
    "home", "kgharvest:harvest_new", "kgharvest:harvest_detail", "annotation:round_new", "annotation:round",
    "annotation:judge", "evaluation:report",
}  # fmt: skip
CLIPPED_TABLES = """[...document.querySelectorAll(".table-wrap")]
    .filter((wrap) => wrap.checkVisibility() && wrap.scrollWidth > wrap.clientWidth).map((wrap) => wrap.ariaLabel)"""
# Printed figures scroll in a region of their own.
CLIPPED_CHARTS = """[...document.querySelectorAll("main :is(svg, img):not(.scroll *)")]
    .filter((chart) => chart.getBoundingClientRect().right > innerWidth).map((chart) => chart.outerHTML)"""


def test_pages_are_accessible_fit_phone_and_obey_csp(visit, person, installation):
    """Check both themes, and main pages at three widths. No page may request another host or violate the CSP."""
    role, user = person
    visitor = visit(user, color_scheme="light")

    faults = {}
    for path in visitor.walk(start_page(role)):
        faults[path] = visitor.axe_violations()
        visitor.page.emulate_media(color_scheme="dark")
        faults[f"{path} (dark)"] = visitor.axe_violations("color-contrast")
        faults[f"{path} (clipped tables)"] = visitor.page.evaluate(CLIPPED_TABLES)
        for width in (390, 1920) if view_name(path) in MAIN_VIEWS else ():
            resize(visitor.page, width)
            faults[f"{path} ({width} px, dark)"] = visitor.axe_violations()
            visitor.page.emulate_media(color_scheme="light")
            faults[f"{path} ({width} px)"] = visitor.axe_violations("color-contrast")
            visitor.page.emulate_media(color_scheme="dark")
        visitor.page.emulate_media(color_scheme="light")
        resize(visitor.page, 360)
        faults[f"{path} (360 px)"] = [width for width in [visitor.page.evaluate(WIDTH)] if width > 360]
        faults[f"{path} (clipped charts)"] = visitor.page.evaluate(CLIPPED_CHARTS)
        resize(visitor.page, 1280)

    assert faults
    assert {page: violations for page, violations in faults.items() if violations} == {}
    assert visitor.foreign_requests() == []
    assert visitor.complaints == []


def test_owners_manage_knowledge_tokens_and_gold_of_their_project(visit):
    owner, project = factories.make_member(Role.OWNER), default_project()
    factories.make_project("Second").members.create(user=owner, role=Role.OWNER)
    shipped = factories.make_relation(relation_set=factories.make_relation_set(is_shipped=True))
    create_token(owner, "nightly", "read", 1, timezone.now(), project=project)
    visitor = visit(owner, width=360)
    page = visitor.page

    for path in (project.get_absolute_url(), f"/rounds/gold/{shipped.pk}/", "/accounts/password_change/"):
        page.goto(path)
        assert (visitor.axe_violations(), page.evaluate(WIDTH)) == ([], 360), path
    assert page.get_by_label("Revoke API tokens").is_checked()
    page.goto(project.get_absolute_url())
    page.get_by_label("Published knowledge").select_option("all")
    page.get_by_role("button", name="Change published knowledge").click()
    page.get_by_role("button", name="Revoke all tokens").click()
    page.get_by_role("button", name="Revoke all tokens").wait_for(state="detached")

    project.refresh_from_db()
    assert (project.published_knowledge, project.api_tokens.filter(revoked_at=None).count()) == ("all", 0)


def test_long_entities_wrap_on_phone(visit):
    seeds = [["x" * 200, "y" * 200], ["a", "b"]]
    relation = factories.make_relation(seed_tuples=seeds)
    knowledge_tuple = factories.make_harvest(seeds, relation=relation).tuples.get(rank=1).knowledge_tuple
    page = visit(factories.make_researcher(), width=360).page

    for item in (relation, knowledge_tuple):
        page.goto(item.get_absolute_url())

        assert page.evaluate(WIDTH) == 360


@pytest.mark.parametrize(("path", "heading"), [("/no/such/page/", "Page not found"), ("/harvests/", "Access denied")])
def test_error_pages_are_accessible(visit, path, heading):
    visitor = visit(factories.make_user())

    visitor.page.goto(path)

    assert visitor.page.get_by_role("heading", level=1).inner_text() == heading
    assert visitor.axe_violations() == []


def test_login_page_transfers_at_most_150_kb(visit):
    visitor = visit()
    sizes = []
    visitor.page.on("response", lambda response: sizes.append(len(response.body())))

    visitor.page.goto("/accounts/login/", wait_until="networkidle")

    assert sum(sizes) <= 150_000
