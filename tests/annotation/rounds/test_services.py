"""Round life cycle (draft, open, paused, closed, cloned) and project permissions."""

from datetime import timedelta

import pytest
from django.utils import timezone

from annotation.judging.assignment import next_batch
from annotation.models import Round, Stratum
from annotation.monitoring.progress import last_look
from annotation.quality.limits import set_limits
from annotation.rounds.models import RoundNotOpen
from annotation.rounds.services import (
    WrongStatus,
    clone_round,
    close_due_rounds,
    close_round,
    create_draft,
    delete_draft,
    edit_draft,
    find_round,
    open_draft,
    open_round,
    pause_round,
    reopen_round,
)
from evaluation.evidence.rows import rules_of_round
from kgharvest.access import NotAllowed
from kgharvest.models import ProjectMember, Role
from kgharvest.names import UnresolvedName
from tests.annotation.rounds.test_builder import HUNDRED, spec
from tests.factories import (
    judge,
    judge_all,
    make_annotators,
    make_harvest,
    make_member,
    make_project,
    make_researcher,
    make_round,
)
from tests.refusals import refused

pytestmark = pytest.mark.django_db


def test_opening_a_round_requires_project_membership_as_researcher():
    project, viewer = make_project("Animals"), make_researcher()
    ProjectMember.objects.create(project=project, user=viewer, role=Role.VIEWER)

    with pytest.raises(NotAllowed, match="work in the project Animals"):
        make_round(by=viewer, project=project)

    assert make_round(by=viewer).project.slug == "default"


def test_description_sets_the_project():
    ada, animals = make_researcher(), make_project("Animals")
    ProjectMember.objects.create(project=animals, user=ada, role=Role.RESEARCHER)
    document = spec(make_harvest(HUNDRED))

    with refused("ProjectNotNamed", match="animals, default"):
        create_draft(document, ada)
    draft = create_draft(document | {"project": "animals"}, ada)

    assert (draft.project, "project" in draft.spec) == (animals, False)
    assert edit_draft(draft, document, ada).project == animals
    assert edit_draft(draft, document | {"project": "default"}, ada).project.slug == "default"


def test_round_names_are_unique_within_a_project():
    first = make_round(name="pilot")
    second = make_round(name="pilot", project=make_project("Animals"))

    with refused("NameTaken", match="A round named 'pilot' already exists in Default"):
        make_round(name="pilot")
    assert [find_round(name) for name in ("default/pilot", "animals/pilot")] == [first, second]
    with pytest.raises(UnresolvedName, match="write one of animals/pilot, default/pilot"):
        find_round("pilot")


@pytest.mark.parametrize("change", [pause_round, reopen_round, close_round, delete_draft, open_draft])
def test_viewer_cannot_change_rounds(change):
    viewer = make_member(Role.VIEWER)
    draft = create_draft(spec(make_harvest(HUNDRED)))
    round = draft if change in (delete_draft, open_draft) else open_draft(draft)

    with pytest.raises(NotAllowed):
        change(round, viewer)

    assert Round.objects.get().status == round.status


def test_draft_draws_no_sample_until_opened():
    job = make_harvest(HUNDRED)
    draft = create_draft(spec(job, n=20, seed=3))
    assert not Stratum.objects.exists()

    opened = open_draft(draft)

    at_once = open_round(spec(job, n=20, seed=3) | {"name": "at-once"})
    first, second = (list(round.tasks.values_list("statement", "position")) for round in (opened, at_once))
    assert opened.is_open
    assert first == second


def test_draft_is_editable_but_open_round_is_not():
    job = make_harvest(HUNDRED)
    draft = edit_draft(create_draft(spec(job, n=20)), spec(job, n=5, judgments_per_task=2) | {"name": "other"})
    assert (draft.name, draft.judgments_per_task) == ("other", 2)

    round = open_draft(draft)

    assert round.n_tasks == 5
    for change in (delete_draft, open_draft, lambda round: edit_draft(round, round.spec)):
        with pytest.raises(WrongStatus, match="is not a draft"):
            change(round)


def test_description_sets_limits_of_round():
    round = open_round(spec(make_harvest(HUNDRED), n=1, limits={"longest_run": 40}))

    assert (round.limits.longest_run, round.limits.n_gold, round.limits.gold_accuracy) == (40, 10, None)
    assert round.events.filter(kind="limits_set").count() == 1


def test_clone_has_current_limits():
    round = open_round(spec(make_harvest(HUNDRED), n=1, limits={"longest_run": 40}))
    set_limits(round, longest_run=None, median_seconds=1.5)

    assert clone_round(round).spec["limits"] == {"median_seconds": 1.5, "n_gold": 10}
    assert clone_round(clone_round(round)).spec["limits"] == {"median_seconds": 1.5, "n_gold": 10}


def test_clone_is_a_draft_with_new_name_and_seed():
    round = make_round(4, name="pilot", judgments_per_task=2, seed=5)

    clones = [clone_round(round), clone_round(round)]

    assert [(clone.name, clone.status, clone.seed, clone.judgments_per_task) for clone in clones] == [
        ("pilot-2", "draft", 6, 2),
        ("pilot-3", "draft", 6, 2),
    ]
    first, second = (list(open_draft(clone).tasks.values_list("statement", flat=True)) for clone in clones)
    assert first == second


def test_draft_with_past_closing_time_cannot_be_opened():
    job = make_harvest(HUNDRED)
    draft = create_draft(spec(job, n=1, closes_when="date", closes_at="2001-01-31T18:00"))

    with refused("BadRoundSpec", match="2001-01-31 18:00 is in the past"):
        open_draft(draft)


def test_duplicate_round_name_is_rejected():
    make_round(name="pilot")

    with refused("NameTaken", match="'pilot'"):
        make_round(name="pilot")


def test_round_can_be_paused_reopened_and_closed():
    round = make_round()

    pause_round(round)
    reopen_round(round)
    close_round(round)

    assert (round.status, round.closed_at is not None) == (Round.Status.CLOSED, True)


def test_closed_round_cannot_be_paused():
    round = make_round()
    close_round(round)

    with pytest.raises(WrongStatus, match=f"{round.name} is closed and cannot become paused"):
        pause_round(round)


def test_round_closes_at_its_date_or_when_complete():
    now = timezone.now()
    dated = make_round(closes_when="date", closes_at=(now + timedelta(hours=1)).isoformat())
    complete, half = (make_round(2, closes_when="complete", judgments_per_task=1) for _ in range(2))
    judge_all(complete, ["true", "true"])
    manual = make_round(1, judgments_per_task=1)
    judge_all(manual, ["true"])

    close_due_rounds(now)
    assert statuses(dated, complete, half, manual) == ["open", "closed", "open", "open"]

    close_due_rounds(now + timedelta(hours=2))
    assert statuses(dated, half) == ["closed", "open"]


def test_round_closes_once_when_periodic_check_finds_narrow_interval():
    """Check the closing width with one of four statements judged (wide) and with all judged (zero)."""
    now = timezone.now()
    round = make_round(4, closes_when="narrow", closes_at_half_width=0.1, judgments_per_task=1)
    [annotator] = make_annotators(round, 1)
    tasks = next_batch(annotator, now)
    judge(annotator, tasks[0])
    close_due_rounds(now)
    assert (statuses(round), last_look(round).content > 0.3) == (["open"], True)

    for task in tasks[1:]:
        judge(annotator, task)
    close_due_rounds(now)
    assert statuses(round) == ["open"]  # the last check was a moment ago

    close_due_rounds(now + timedelta(minutes=2))
    assert (statuses(round), last_look(round).content) == (["closed"], 0)
    round.refresh_from_db()
    assert rules_of_round(round)["closed_at_half_width"] == 0.1
    reopen_round(round)
    close_due_rounds(now + timedelta(minutes=4))
    assert statuses(round) == ["open"]
    assert rules_of_round(round)["closed_at_half_width"] is None
    close_round(round)
    assert rules_of_round(round)["closed_at_half_width"] is None  # closed by a person


def test_round_without_judgments_stays_open_after_width_check():
    round = make_round(4, closes_when="narrow", closes_at_half_width=0.1, judgments_per_task=1)

    close_due_rounds(timezone.now())

    assert (statuses(round), last_look(round).content) == (["open"], None)


def statuses(*rounds) -> list[str]:
    return [Round.objects.get(pk=round.pk).status for round in rounds]


def test_no_statements_are_assigned_after_closing_time():
    round = make_round(closes_when="date", closes_at=(timezone.now() + timedelta(hours=1)).isoformat())
    [annotator] = make_annotators(round, 1)
    Round.objects.update(closes_at=timezone.now())

    with pytest.raises(RoundNotOpen, match="is over"):
        next_batch(annotator, timezone.now())


def test_reopened_round_is_not_closed_automatically():
    round = make_round(1, closes_when="complete", judgments_per_task=1)
    judge_all(round, ["true"])
    close_due_rounds(timezone.now())

    round.refresh_from_db()
    reopen_round(round)
    close_due_rounds(timezone.now())

    assert statuses(round) == ["open"]
