"""Prompt creation: the loop that extends a few initial prompts by paraphrases."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from kgharvest.engine.prompts.creation import create_prompts, similarity
from kgharvest.engine.prompts.template import PromptTemplate, parse_prompts
from kgharvest.engine.types import Cancelled, EngineError, Progress

SEEDS = [("mask", "virus"), ("vaccine", "disease"), ("umbrella", "rain")]
INITIAL = parse_prompts(["<ENT0> prevents <ENT1> ."], arity=2)
WORDINGS = [
    "{1} is stopped by {0}.",
    "Because of {0}, there is no {1}.",
    "A good {0} keeps every {1} away.",
    "Whoever fears {1} should get a {0}.",
    "What helps against {1}? Surely {0}!",
    "To be safe from {1}, people trust in {0}.",
    "Without {0}, there would be much more {1}.",
    "Doctors recommend {0} to all who want to avoid {1}.",
    "The {0} was invented to put an end to {1} once and for all.",
    "My neighbours have never seen {1} since they bought {0}.",
    "Nothing is as good as {0} when there is a lot of {1}.",
]


class ScriptedParaphraser:
    """Fake paraphraser that computes answers from the call number and the entities, and records its inputs."""

    name = "scripted"

    def __init__(self, answer: Callable[[int, Sequence[str]], list[str]]) -> None:
        self._answer = answer
        self.sentences: list[str] = []
        self.restatements: list[str] = []
        self.frames: list[str] = []

    def paraphrase(self, sentence: str, entities: Sequence[str]) -> list[str]:
        self.sentences.append(sentence)
        return self._answer(len(self.sentences) - 1, entities)

    def restate(self, sentence: str, entities: Sequence[str]) -> list[str]:
        return [wording.format(*entities) for wording in self.restatements]

    def frame(self, sentence: str, entities: Sequence[str]) -> list[str]:
        return [f"{start}, {sentence}" for start in self.frames]


def test_restatements_come_after_paraphrases_and_before_frames() -> None:
    paraphraser = ScriptedParaphraser(lambda call, entities: [f"{entities[1]} is stopped by {entities[0]}."])
    paraphraser.restatements = ["Who or what stops {1}? The answer is {0}.", "Because of {0}, there is no {1}."]
    paraphraser.frames = ["truly" * 9]

    prompts = create_prompts(INITIAL, SEEDS, paraphraser, random.Random(0))

    assert texts(prompts)[1:4] == [
        "<ENT1> is stopped by <ENT0> .",
        "Who or what stops <ENT1>? The answer is <ENT0> .",
        "Because of <ENT0>, there is no <ENT1> .",
    ]
    assert prompts[4].text.startswith("truly")
    assert len(prompts) == 5


def test_missing_paraphrases_are_replaced_by_at_most_20_percent_frames() -> None:
    paraphraser = ScriptedParaphraser(lambda call, entities: [])
    paraphraser.frames = [word * 9 for word in ("so", "truly", "indeed")]

    initial = parse_prompts([f"<ENT0> {verb} <ENT1>" for verb in ("eats", "causes", "takes off", "dislikes")], arity=2)

    prompts = create_prompts(initial, SEEDS, paraphraser, random.Random(0))

    assert len(prompts) == 4 + 1


def one_a_call() -> ScriptedParaphraser:
    return ScriptedParaphraser(lambda call, entities: [WORDINGS[call % len(WORDINGS)].format(*entities)])


def all_at_once() -> ScriptedParaphraser:
    return ScriptedParaphraser(lambda call, entities: [wording.format(*entities) for wording in WORDINGS])


def texts(prompts: Sequence[PromptTemplate]) -> list[str]:
    return [prompt.text for prompt in prompts]


def test_ten_prompts_start_with_initial_prompt_in_creation_order() -> None:
    prompts = create_prompts(INITIAL, SEEDS, all_at_once(), random.Random(0))

    assert len(prompts) == 10
    assert texts(prompts)[:3] == [
        "<ENT0> prevents <ENT1> .",
        "<ENT1> is stopped by <ENT0> .",
        "Because of <ENT0>, there is no <ENT1> .",
    ]


def test_new_prompts_are_paraphrased_next() -> None:
    paraphraser = one_a_call()

    prompts = create_prompts(INITIAL, SEEDS[:1], paraphraser, random.Random(0))

    assert len(prompts) == 10
    assert paraphraser.sentences[:3] == [
        "mask prevents virus.",
        "virus is stopped by mask.",
        "Because of mask, there is no virus.",
    ]


def test_prompts_differ_by_more_than_a_quarter() -> None:
    prompts = create_prompts(INITIAL, SEEDS, all_at_once(), random.Random(0))

    assert all(similarity(first, second) < 0.75 for first, second in itertools.combinations(prompts, 2))


def test_similarity_is_one_minus_normalized_edit_distance() -> None:
    # prevents -> stops: 7 edits. The last letter stays, 3 letters are deleted, and 4 are replaced by "stop".
    first, second = parse_prompts(["<ENT0> prevents <ENT1> .", "<ENT0> stops <ENT1> ."], arity=2)

    assert similarity(first, second) == pytest.approx(1 - 7 / 24)


def test_similar_and_slotless_paraphrases_are_dropped() -> None:
    answers = ["{0} prevent {1}.", "{0} prevents it.", "{0} prevents {1} and {1}.", "{1} is stopped by {0}."]
    paraphraser = ScriptedParaphraser(lambda call, entities: [answer.format(*entities) for answer in answers])

    prompts = create_prompts(INITIAL, SEEDS, paraphraser, random.Random(0))

    assert texts(prompts) == ["<ENT0> prevents <ENT1> .", "<ENT1> is stopped by <ENT0> ."]


def test_other_seed_tuples_are_tried_if_one_yields_nothing_new() -> None:
    paraphraser = ScriptedParaphraser(
        lambda call, entities: ["{1} is stopped by {0}.".format(*entities)] if entities[0] == "umbrella" else []
    )

    prompts = create_prompts(INITIAL, SEEDS, paraphraser, random.Random(0))

    assert len(prompts) == 2


def test_creation_ends_without_new_paraphrases() -> None:
    paraphraser = ScriptedParaphraser(lambda call, entities: [])

    prompts = create_prompts(INITIAL, SEEDS, paraphraser, random.Random(0))

    assert prompts == INITIAL
    assert sorted(paraphraser.sentences) == [
        "mask prevents virus.",
        "umbrella prevents rain.",
        "vaccine prevents disease.",
    ]


def test_initial_prompts_are_kept_and_ten_need_no_paraphrases() -> None:
    initial = parse_prompts([f"<ENT0> prevents <ENT1> {number} ." for number in range(12)], arity=2)
    paraphraser = all_at_once()

    assert create_prompts(initial, SEEDS, paraphraser, random.Random(0)) == initial
    assert paraphraser.sentences == []


def test_same_random_state_gives_same_prompts() -> None:
    runs = [create_prompts(INITIAL, SEEDS, one_a_call(), random.Random(7)) for _ in range(2)]

    assert runs[0] == runs[1]


def test_progress_counts_kept_prompts() -> None:
    reports: list[Progress] = []

    create_prompts(INITIAL, SEEDS, one_a_call(), random.Random(0), reports.append)

    assert [progress.done for progress in reports] == list(range(1, 11))
    assert {(progress.stage, progress.total) for progress in reports} == {("prompts", 10)}


def test_slow_paraphraser_does_not_block_cancellation_or_exit() -> None:
    answer_may_come = threading.Event()
    paraphraser = ScriptedParaphraser(lambda call, entities: [str(answer_may_come.wait(timeout=30))])
    reports: list[Progress] = []

    def cancel_at_the_third_report(progress: Progress) -> None:
        reports.append(progress)
        if len(reports) == 3:
            raise Cancelled("Cancelled.")

    started_at = time.monotonic()
    with pytest.raises(Cancelled):
        create_prompts(INITIAL, SEEDS, paraphraser, random.Random(0), cancel_at_the_third_report)
    duration_s = time.monotonic() - started_at
    still_waiting = [thread for thread in threading.enumerate() if thread.name == "paraphraser"]
    answer_may_come.set()

    assert duration_s < 3
    assert all(thread.daemon for thread in still_waiting)  # daemon threads do not block process exit


def test_paraphraser_error_reaches_caller() -> None:
    def fail(call: int, entities: Sequence[str]) -> list[str]:
        raise EngineError("The paraphraser is out of paper.")

    with pytest.raises(EngineError, match="out of paper"):
        create_prompts(INITIAL, SEEDS, ScriptedParaphraser(fail), random.Random(0))


@pytest.mark.parametrize(
    ("initial", "ending"), [("<ENT0> prevents <ENT1>.", ">."), ("<ENT0> prevents <ENT1> .", "> .")]
)
def test_paraphrases_keep_space_before_final_mark_of_prompt(initial: str, ending: str) -> None:
    paraphraser = ScriptedParaphraser(lambda call, entities: ["Whoever has a {} need not fear {}.".format(*entities)])

    [_, paraphrase] = create_prompts(parse_prompts([initial], arity=2), SEEDS, paraphraser, random.Random(0))

    assert paraphrase.text == f"Whoever has a <ENT0> need not fear <ENT1{ending}"
