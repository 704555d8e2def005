"""Sequential assignment and judgments; tests/annotation/judging/test_races.py covers concurrency."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from annotation.invites.services import join_round
from annotation.judging.assignment import LEASE, next_batch
from annotation.judging.judgments import Answer, submit_and_fill_batch, submit_judgment
from annotation.models import Annotator, Assignment, Judgment, JudgmentTask, Label
from annotation.rounds.models import RoundNotOpen
from annotation.rounds.services import close_round, pause_round, reopen_round
from tests.factories import judge, judge_all, make_annotators, make_round, make_user
from tests.refusals import refused

pytestmark = pytest.mark.django_db

NOW = timezone.now()
T, F_, U = Label.TRUE, Label.FALSE, Label.UNJUDGEABLE


def counts(task: JudgmentTask) -> tuple[int, int, int, int]:
    task.refresh_from_db()
    return task.n_true, task.n_false, task.n_unjudgeable, task.n_leased


# Joining


def test_joining_twice_returns_same_annotator():
    round, user = make_round(), make_user()

    assert join_round(round, user) == join_round(round, user)


def test_joining_a_closed_round_is_rejected():
    round = make_round()
    close_round(round)

    with pytest.raises(RoundNotOpen, match="is closed"):
        join_round(round, make_user())


def test_annotator_code_does_not_reveal_username():
    user = make_user("ada.lovelace")

    assert "ada" not in join_round(make_round(), user).code


# Assignment


def test_batch_has_size_set_in_round():
    round = make_round(7, batch_size=5)
    [annotator] = make_annotators(round, 1)

    assert len(next_batch(annotator, NOW)) == 5


def test_next_batch_returns_assigned_tasks_again():
    [annotator] = make_annotators(make_round(7, batch_size=5), 1)

    assert next_batch(annotator, NOW) == next_batch(annotator, NOW)


def test_next_batch_refills_after_a_judgment():
    [annotator] = make_annotators(make_round(7, batch_size=5), 1)
    first = next_batch(annotator, NOW)

    judge(annotator, first[0])

    assert set(first[1:]) < set(next_batch(annotator, NOW))


def test_annotator_gets_every_task_once():
    round = make_round(23, batch_size=4)

    judge_all(round, [T] * 23)

    assert round.tasks.filter(n_judgments=1).count() == 23


def test_annotators_start_at_different_positions():
    round = make_round(50, batch_size=5)

    firsts = {next_batch(annotator, NOW)[0].position for annotator in make_annotators(round, 5)}

    assert len(firsts) > 1


def test_leases_and_judgments_never_exceed_k():
    round = make_round(1, judgments_per_task=2)
    annotators = make_annotators(round, 3)

    batches = [next_batch(annotator, NOW) for annotator in annotators]

    assert [len(batch) for batch in batches] == [1, 1, 0]


def test_expired_lease_is_reassigned_to_another_annotator():
    round = make_round(1, judgments_per_task=1)
    slow, quick = make_annotators(round, 2)
    next_batch(slow, NOW)

    later = NOW + LEASE + timedelta(seconds=1)

    assert len(next_batch(quick, later)) == 1
    assert Assignment.objects.get(annotator=slow).status == Assignment.Status.EXPIRED


def test_fetching_a_batch_renews_leases():
    round = make_round(1, judgments_per_task=1)
    slow, quick = make_annotators(round, 2)
    next_batch(slow, NOW)

    next_batch(slow, NOW + LEASE / 2)

    assert next_batch(quick, NOW + LEASE + timedelta(seconds=1)) == []


def test_expired_task_is_reassigned_to_same_annotator_if_free():
    round = make_round(1, judgments_per_task=1)
    slow, other = make_annotators(round, 2)
    [task] = next_batch(slow, NOW)
    later = NOW + LEASE + timedelta(seconds=1)
    next_batch(other, later)
    much_later = later + LEASE + timedelta(seconds=1)

    assert next_batch(slow, much_later) == [task]


@pytest.mark.parametrize("end", [pause_round, close_round])
def test_tasks_are_assigned_only_in_open_rounds(end):
    round = make_round()
    [annotator] = make_annotators(round, 1)
    end(round)

    with pytest.raises(RoundNotOpen):
        next_batch(annotator, NOW)


def test_assignment_takes_few_queries_after_many_judgments(django_assert_max_num_queries):
    round = make_round(40, batch_size=5)
    [annotator] = make_annotators(round, 1)
    for task in next_batch(annotator, NOW):
        judge(annotator, task)
    Annotator.objects.update(next_position=5)  # far from the end of the cycle

    with django_assert_max_num_queries(10):  # including a savepoint and its release
        next_batch(annotator, NOW)


# Judgments


def test_k_judgments_complete_a_task():
    round = make_round(1)

    judge_all(round, [T], [F_], [T])

    task = round.tasks.get()
    assert (task.n_judgments, task.verdict) == (3, "accepted")


def test_task_with_fewer_than_k_judgments_has_no_verdict():
    round = make_round(1)

    judge_all(round, [T], [T])

    assert round.tasks.get().verdict == ""


def test_three_different_labels_are_undecided():
    round = make_round(1)

    judge_all(round, [T], [F_], [U])

    assert round.tasks.get().verdict == "undecided"


def test_resent_answer_is_one_judgment():
    [annotator] = make_annotators(make_round(1), 1)
    [task] = next_batch(annotator, NOW)
    answer = Answer(task.pk, T, uuid4())

    first, second = (submit_judgment(annotator, answer, NOW) for _ in range(2))

    assert first == second
    assert counts(task) == (1, 0, 0, 0)


def test_second_answer_supersedes_the_first():
    [annotator] = make_annotators(make_round(1), 1)
    [task] = next_batch(annotator, NOW)
    first = judge(annotator, task, T)

    second = judge(annotator, task, F_)

    first.refresh_from_db()
    assert first.superseded_by == second
    assert list(Judgment.objects.current()) == [second]
    assert counts(task) == (0, 1, 0, 0)


def test_changed_answer_changes_the_verdict():
    round = make_round(1)
    *_, last = judge_all(round, [T], [F_], [T])

    judge(last, round.tasks.get(), F_)

    assert round.tasks.get().verdict == "rejected"


def test_late_answer_counts_while_task_is_incomplete():
    round = make_round(1, judgments_per_task=2)
    slow, other = make_annotators(round, 2)
    [task] = next_batch(slow, NOW)
    next_batch(other, NOW + LEASE + timedelta(seconds=1))

    judgment = judge(slow, task)

    assert judgment.is_counted
    assert counts(task) == (1, 0, 0, 1)


def test_late_answer_to_complete_task_is_stored_but_not_counted():
    round = make_round(1, judgments_per_task=1)
    slow, quick = make_annotators(round, 2)
    [task] = next_batch(slow, NOW)
    next_batch(quick, NOW + LEASE + timedelta(seconds=1))
    judge(quick, task, F_)

    late = judge(slow, task, T)

    assert Judgment.objects.filter(pk=late.pk, is_counted=False).exists()
    assert counts(task) == (0, 1, 0, 0)


def test_changed_uncounted_answer_stays_uncounted():
    round = make_round(1, judgments_per_task=1)
    slow, quick = make_annotators(round, 2)
    [task] = next_batch(slow, NOW)
    next_batch(quick, NOW + LEASE + timedelta(seconds=1))
    judge(quick, task, F_)
    judge(slow, task, T)

    judge(slow, task, U)

    assert counts(task) == (0, 1, 0, 0)


def test_task_of_another_annotator_is_rejected():
    round = make_round(1)
    owner, stranger = make_annotators(round, 2)
    [task] = next_batch(owner, NOW)

    with refused("NotAssigned", match="not assigned to you"):
        judge(stranger, task)
    assert not Judgment.objects.exists()


def test_task_of_another_round_is_rejected():
    [annotator] = make_annotators(make_round(1), 1)
    foreign = make_round(1).tasks.get()

    with refused("NotAssigned"):
        judge(annotator, foreign)


@pytest.mark.parametrize("end", [pause_round, close_round])
def test_judgments_are_accepted_only_in_open_rounds(end):
    round = make_round(1)
    [annotator] = make_annotators(round, 1)
    [task] = next_batch(annotator, NOW)
    end(round)

    with pytest.raises(RoundNotOpen):
        judge(annotator, task)
    assert counts(task)[:3] == (0, 0, 0)


def test_closing_releases_leases():
    round = make_round(3)
    first, second = make_annotators(round, 2)
    next_batch(first, NOW)
    judge(second, next_batch(second, NOW)[0])

    assert close_round(round) == 5

    assert set(round.tasks.values_list("n_leased", flat=True)) == {0}
    assert [event.details for event in round.events.filter(kind="given_back")] == [{"n": 5}]


def test_closing_keeps_leases_of_other_rounds():
    rounds = [make_round(1), make_round(1)]
    for round in rounds:
        next_batch(make_annotators(round, 1)[0], NOW)

    close_round(rounds[0])

    assert [round.tasks.get().n_leased for round in rounds] == [0, 1]


def test_reopened_round_assigns_released_tasks():
    round = make_round(1)
    [annotator] = make_annotators(round, 1)
    [task] = next_batch(annotator, NOW)
    close_round(round)
    reopen_round(round)

    assert next_batch(Annotator.objects.get(), NOW) == [task]
    judge(annotator, task, T)
    assert counts(task) == (1, 0, 0, 0)


def test_resent_answer_is_confirmed_after_closing():
    round = make_round(1)
    [annotator] = make_annotators(round, 1)
    [task] = next_batch(annotator, NOW)
    answer = Answer(task.pk, T, uuid4())
    stored = submit_judgment(annotator, answer, NOW)
    close_round(round)

    assert submit_judgment(annotator, answer, NOW) == stored


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"label": "maybe"}, "Unknown label 'maybe'"),
        ({"label": "True"}, "Unknown label 'True'"),
        ({"label": T, "comment": "x" * 10_000}, "10000 characters"),
        ({"label": T, "seconds": -1.0}, "-1.0 seconds"),
        ({"label": T, "seconds": float("nan")}, "nan seconds"),
    ],
)
def test_invalid_answer_is_rejected(fields, message):
    [annotator] = make_annotators(make_round(1), 1)
    [task] = next_batch(annotator, NOW)

    with refused("BadAnswer", match=message):
        judge(annotator, task, **fields)
    assert counts(task) == (0, 0, 0, 1)


def test_uuid_of_another_answer_is_rejected():
    [annotator] = make_annotators(make_round(2), 1)
    first, second = next_batch(annotator, NOW)
    uuid = uuid4()
    submit_judgment(annotator, Answer(first.pk, T, uuid), NOW)

    with refused("UuidReused"):
        submit_judgment(annotator, Answer(second.pk, T, uuid), NOW)


def test_answer_takes_few_queries(django_assert_num_queries):
    [annotator] = make_annotators(make_round(1), 1)
    [task] = next_batch(annotator, NOW)
    answer = Answer(task.pk, T, uuid4())

    with django_assert_num_queries(8):  # two reads, four writes, a savepoint and its release
        submit_judgment(annotator, answer, NOW)


def test_answer_with_next_batch_takes_few_queries(django_assert_num_queries):
    [annotator] = make_annotators(make_round(8, batch_size=2), 1)
    Annotator.objects.update(next_position=0)
    [task, other] = next_batch(annotator, NOW)
    answer = Answer(task.pk, T, uuid4())

    with django_assert_num_queries(15):  # 8 for an answer and 7 for a batch, which reuses the lock
        _, tasks = submit_and_fill_batch(annotator, answer, NOW)

    assert tasks[0] == other
    assert len(tasks) == 2


def test_last_answer_of_quota_returns_no_statements():
    [annotator] = make_annotators(make_round(4, batch_size=2, max_per_annotator=2), 1)
    first, second = next_batch(annotator, NOW)
    judge(annotator, first)

    judgment, tasks = submit_and_fill_batch(annotator, Answer(second.pk, T, uuid4()), NOW)

    assert judgment.is_counted
    assert tasks == []


# Database constraints


def test_database_rejects_more_judgments_than_required():
    make_round(1, judgments_per_task=1)

    with pytest.raises(IntegrityError, match="never_more_than_wanted"), transaction.atomic():
        JudgmentTask.objects.update(n_judgments=F("n_judgments") + 2, n_true=F("n_true") + 2)


def test_database_rejects_two_current_judgments_of_one_annotator():
    round = make_round(1)
    [annotator] = judge_all(round, [T])

    with pytest.raises(IntegrityError), transaction.atomic():
        Judgment.objects.create(
            client_uuid=uuid4(), task=round.tasks.get(), annotator=annotator, label=T, judged_at=NOW
        )


def test_database_rejects_unknown_label():
    round = make_round(1)
    [annotator] = make_annotators(round, 1)

    with pytest.raises(IntegrityError, match="judgment_label_known"), transaction.atomic():
        Judgment.objects.create(
            client_uuid=uuid4(), task=round.tasks.get(), annotator=annotator, label="maybe", judged_at=NOW
        )
