from __future__ import annotations

import pytest

from annotation.judges.labels import SeveralJudges, check_one_judge, judge_labels, label_of, most_frequent
from tests.factories import make_judge_answer, make_judge_run, make_round


@pytest.mark.parametrize(
    ("raw", "label"),
    [
        ("True", "true"),
        ("  false.\n", "false"),
        ("**Unjudgeable**", "unjudgeable"),
        ("unjudgable", "unjudgeable"),
        ("Answer: True", "true"),
        ("Final answer: **False**", "false"),
        ("The statement is true.", "true"),
        ("Some think it is false, but it holds.\n\nTrue", "true"),
        ("True\nFalse, on second thought\nFalse", "false"),
        ("<think>Is it false? Perhaps true.</think>\nFalse", "false"),
        ("<think>It may be true", ""),
        ("False. It is not true that fish fly.", "false"),
        ("**True**: as a rule it holds, though not true of all.", "true"),
        ('{"label": "unjudgeable"}', "unjudgeable"),
        ("It is not true.", ""),
        ("True/False", ""),
        ("It could be true or false.", ""),
        ("I cannot help with that.", ""),
        ("trueish", ""),
        ("", ""),
        ("yes", ""),
    ],
)
def test_label_of_parses_unambiguous_answers(raw, label):
    assert label_of(raw) == label


@pytest.mark.parametrize(
    ("votes", "label"),
    [
        ({"true": 2, "false": 1}, "true"),
        ({"true": 1, "false": 1}, ""),
        ({"": 5, "false": 1}, "false"),
        ({"": 3}, ""),
        ({}, ""),
        ({"true": 2, "false": 2, "unjudgeable": 1}, ""),
    ],
)
def test_ties_and_unparsable_answers_have_no_label(votes, label):
    assert most_frequent(votes) == label


@pytest.fixture
def round(db):
    return make_round(3)


def make_answered_run(round, name, labels, **fields):
    """Create a run with labels[i][repeat] as the answers for the i-th task."""
    run = make_judge_run(round, name, repeats=max(map(len, labels)))
    for task, of_task in zip(round.tasks.all(), labels, strict=False):
        for repeat, label in enumerate(of_task):
            make_judge_answer(run, task.knowledge_tuple, label, repeat=repeat, **fields)
    return run


def test_judge_label_is_majority_of_repeats(round):
    run = make_answered_run(round, "judge", [["true", "true", "false"], ["true", "false", ""]])

    first, second, _ = (task.knowledge_tuple_id for task in round.tasks.all())
    assert judge_labels(run) == {first: "true", second: ""}


def test_answers_of_several_lms_raise_several_judges(round):
    run = make_answered_run(round, "judge", [["true"]], model_reported="gpt-x fp_1")
    # A malformed answer has no model name.
    make_judge_answer(run, round.tasks.last().knowledge_tuple, "", model_reported="")
    check_one_judge(run)

    make_judge_answer(run, round.tasks.all()[1].knowledge_tuple, "true", model_reported="gpt-x fp_2")

    with pytest.raises(SeveralJudges, match="by gpt-x fp_1 and by gpt-x fp_2"):
        check_one_judge(run)


def test_answers_to_several_prompts_raise_several_judges(round):
    run = make_answered_run(round, "judge", [["true"]])
    make_judge_answer(run, round.tasks.last().knowledge_tuple, "true", prompt_sha256="b" * 64)

    with pytest.raises(SeveralJudges, match="different prompts"):
        check_one_judge(run)
