"""Withdrawal of annotators, by themselves or on request, according to the round's on_withdrawal option."""

import pytest
from django.utils import timezone

from annotation.exchange.judgment_export import judgment_table
from annotation.invites.services import join_round
from annotation.judging.sealing import seal_judgments
from annotation.models import Annotator, Exclusion, Judgment, StatementReport, WhoAnswers, Withdrawal
from annotation.quality.exclusion import reinstate_annotator
from annotation.questionnaire import withdrawal
from annotation.questionnaire.services import answer_who_questions
from annotation.questionnaire.withdrawal import finish_withdrawals, withdraw_annotator
from kgharvest.audit.verification import Verification
from kgharvest.models import ProjectMember
from tests.api import client_of
from tests.factories import judge, judge_all, make_round, make_user
from tests.refusals import refused

pytestmark = pytest.mark.django_db

LABELS = [["true", "true"], ["true", "false"], ["false", "false"]]


def judged_round(**spec):
    round = make_round(2, ask_language="no", **spec)
    return round, judge_all(round, *LABELS)


def comment_on(annotator: Annotator, text: str) -> None:
    judgment = annotator.judgments.current().first()
    judge(annotator, judgment.task, judgment.label, comment=text)


def verdicts(round) -> list[str]:
    return list(round.tasks.order_by("position").values_list("verdict", flat=True))


def test_deleted_judgments_no_longer_count():
    round, [first, second, third] = judged_round(on_withdrawal="delete")
    assert verdicts(round) == ["accepted", "rejected"]

    withdraw_annotator(third)

    assert verdicts(round) == ["", ""]  # a third judgment is required again
    assert [(task.n_judgments, task.n_true) for task in round.tasks.order_by("position")] == [(2, 2), (2, 1)]
    assert {row["annotator"] for row in judgment_table(round).records()} == {first.code, second.code}
    assert Exclusion.objects.get().annotator == third


def test_kept_judgments_are_anonymous():
    round, [first, *_] = judged_round(on_withdrawal="keep")
    comment_on(first, "I know this dog.")

    withdraw_annotator(first)

    first.refresh_from_db()
    assert verdicts(round) == ["accepted", "rejected"]
    assert (first.user, first.name, first.status) == (None, "", "active")
    assert first.erased_at is not None
    assert len(list(judgment_table(round).rows)) == 6
    assert not Exclusion.objects.exists()


def test_withdrawal_erases_text_and_the_audit_log_verifies():
    round, [first, *_] = judged_round(on_withdrawal="delete")
    comment_on(first, "a secret")
    StatementReport.objects.create(
        task=round.tasks.first(), annotator=first, reason="other", comment="a secret", reported_at=timezone.now()
    )
    seal_judgments()

    withdraw_annotator(first)
    seal_judgments()

    assert "a secret" not in str(list(Judgment.objects.values())) + str(list(StatementReport.objects.values()))
    assert list(Verification()) == []


def test_audit_log_detects_judgment_changed_after_withdrawal():
    _, [first, *_] = judged_round(on_withdrawal="delete")
    comment_on(first, "a secret")
    withdraw_annotator(first)
    seal_judgments()

    Judgment.objects.filter(annotator=first).update(label="unjudgeable")

    assert any("altered" in sentence for sentence in Verification())


def test_withdrawal_is_idempotent_and_cannot_be_reinstated():
    round, [first, *_] = judged_round(on_withdrawal="delete")

    for _ in range(2):
        withdraw_annotator(first)

    assert (Withdrawal.objects.count(), round.events.filter(kind="withdrew").count()) == (1, 1)
    with refused("NotExcluded", match="has withdrawn"):
        reinstate_annotator(first)


def test_interrupted_withdrawal_resumes_after_user_left_the_project(monkeypatch, researcher):
    _, [first, *_] = judged_round(on_withdrawal="delete")
    comment_on(first, "a secret")

    exclude = withdrawal.exclude_annotator

    def exclude_and_stop(*args):
        exclude(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(withdrawal, "exclude_annotator", exclude_and_stop)
        with pytest.raises(KeyboardInterrupt):
            withdraw_annotator(first, researcher)
    ProjectMember.objects.filter(user=researcher).delete()
    finish_withdrawals(timezone.now())
    assert Judgment.objects.exclude(comment="").exists()  # the withdrawal may still be in progress

    finish_withdrawals(timezone.now() + withdrawal.INTERRUPTED_AFTER)

    first.refresh_from_db()
    assert first.erased_at is not None
    assert not Judgment.objects.exclude(comment="").exists()
    assert (Withdrawal.objects.get().done_at is None, Withdrawal.objects.get().by) == (False, researcher)


def test_withdrawal_erases_questionnaire_answers():
    round = make_round(2, ask_language="optional")
    annotator = join_round(round, make_user())
    answer_who_questions(annotator, {"language": "Welsh"}, timezone.now())

    withdraw_annotator(annotator)

    assert not WhoAnswers.objects.exists()


# Pages


def test_annotators_can_withdraw_on_their_page(client):
    round, [first, *_] = judged_round(on_withdrawal="delete")
    client.force_login(first.user)
    address = f"/judge/{round.pk}/withdraw/"

    confirmation = client.get(address).text
    done = client.post(address).text

    assert "your judgments no longer count, and everything you wrote is deleted" in confirmation
    assert "You have withdrawn" in done
    assert client.get(f"/judge/{round.pk}/").status_code == 404
    assert Withdrawal.objects.get().by is None


def test_join_page_explains_withdrawal(client):
    for option, words in (("keep", "kept without your name"), ("delete", "no longer count")):
        round = make_round(2, consent="Do you agree?", who_can_join="link", on_withdrawal=option)

        page = client.get(f"/join/{round.join_token}/").text

        assert words in page


def test_annotators_can_withdraw_with_an_api_token():
    round, [first, *_] = judged_round()
    client = client_of(first.user, "judge")

    assert client.post(f"/api/v1/judging/{round.pk}/withdraw/").json() == {"kept": []}

    assert client.get(f"/api/v1/judging/{round.pk}/").status_code == 404


def test_researchers_can_withdraw_annotators(researcher, researcher_client):
    round, [first, *_] = judged_round()
    address = f"{round.get_absolute_url()}annotators/{first.code}/"

    researcher_client.post(f"{address}withdraw/")

    assert Withdrawal.objects.get().by == researcher
    assert "the judgments are kept without a name" in researcher_client.get(address).text
