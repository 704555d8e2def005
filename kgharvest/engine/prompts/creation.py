"""Prompt creation: paraphrase a few initial prompts into many (BertNet, section 3.1)."""

from __future__ import annotations

import random
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for

from rapidfuzz.distance import Levenshtein

from kgharvest.engine.prompts.paraphrase import Paraphraser
from kgharvest.engine.prompts.slot_recovery import as_prompt, as_sentence
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import OnProgress, Progress, ignore

STAGE = "prompts"
MAX_SIMILARITY = 0.75
FRAMED_SHARE = 5  # at most 1 of 5 prompts is an initial prompt in a frame ("it is well known that ...")
TRIES_PER_PROMPT = 3  # maximum number of seed tuples tried per prompt until one yields new paraphrases
TICK_S = 0.5
GAP_AT_END = re.compile(r"\s+(?=[.?!]$)")

Reword = Callable[[str, Sequence[str]], list[str]]


def create_prompts(
    initial: Sequence[PromptTemplate],
    seed_tuples: Sequence[Sequence[str]],
    paraphraser: Paraphraser,
    rng: random.Random,
    on_progress: OnProgress = ignore,
    n_prompts: int = 10,
) -> list[PromptTemplate]:
    """Return `initial` and paraphrases of them, `n_prompts` in total, or fewer if no more new ones can be created.

    Each prompt is filled with a random seed tuple and paraphrased. A paraphrase that differs enough from all prompts so
    far is accepted and paraphrased later. If there are too few, up to a fifth are initial prompts in a frame. The same
    `rng` state gives the same prompts if the paraphraser is deterministic.
    `on_progress` receives the number of prompts every half second; its exceptions end the work.
    """
    prompts = list(dict.fromkeys(initial))
    pending = deque(prompts)

    def report() -> None:
        on_progress(Progress(STAGE, min(len(prompts), n_prompts), n_prompts))

    def in_other_words(prompt: PromptTemplate, reword: Reword, n_missing: int) -> list[PromptTemplate]:
        def reword_with_ticks(sentence: str, entities: Sequence[str]) -> list[str]:
            future = in_background(reword, sentence, entities)
            report()
            while wait_for([future], timeout=TICK_S).not_done:
                report()
            return future.result()

        return new_prompts(prompt, seed_tuples, prompts, reword_with_ticks, rng)[:n_missing]

    while pending and len(prompts) < n_prompts:
        new = in_other_words(pending.popleft(), paraphraser.paraphrase, n_prompts - len(prompts))
        prompts += new
        pending += new
    n_most = min(n_prompts, len(prompts) + len(prompts) // (FRAMED_SHARE - 1))
    for prompt in initial if n_most > len(prompts) else ():
        prompts += in_other_words(prompt, paraphraser.frame, n_most - len(prompts))
    report()
    return prompts


def new_prompts(
    prompt: PromptTemplate,
    seed_tuples: Sequence[Sequence[str]],
    kept: Sequence[PromptTemplate],
    reword: Reword,
    rng: random.Random,
) -> list[PromptTemplate]:
    """Return paraphrases of `prompt` that differ enough from `kept` and each other, from the first seed with any.

    They have a space before the final mark only if `prompt` has one.
    """
    has_gap = GAP_AT_END.search(prompt.text)
    for entities in rng.sample(list(seed_tuples), min(TRIES_PER_PROMPT, len(seed_tuples))):
        new: list[PromptTemplate] = []
        for sentence in reword(as_sentence(prompt, entities), entities):
            recovered = as_prompt(sentence, entities)
            if recovered is None:
                continue
            template = recovered if has_gap else PromptTemplate.parse(GAP_AT_END.sub("", recovered.text))
            if all(similarity(template, other) < MAX_SIMILARITY for other in (*kept, *new)):
                new.append(template)
        if new:
            return new
    return []


def similarity(prompt: PromptTemplate, other: PromptTemplate) -> float:
    """Return 1 - edit distance / longer length, in [0, 1]."""
    return Levenshtein.normalized_similarity(prompt.text, other.text)


def in_background(reword: Reword, sentence: str, entities: Sequence[str]) -> Future[list[str]]:
    """Reword a sentence in a daemon thread, so that a silent endpoint delays neither cancellation nor exit."""
    future: Future[list[str]] = Future()

    def run() -> None:
        try:
            future.set_result(reword(sentence, entities))
        except BaseException as error:  # `Future.result` raises it again
            future.set_exception(error)

    threading.Thread(target=run, name="paraphraser", daemon=True).start()
    return future
