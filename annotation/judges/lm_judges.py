"""Local LM judges: a causal LM can judge by its most likely answer, and any LM by the score that it gives a tuple.

This module imports torch, so only workers and commands that run a judge import it.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from time import monotonic
from typing import Any

import numpy as np

from annotation.judges.models import JudgeRun
from annotation.judges.prompts import WRITTEN, fill
from annotation.judges.runs import Answered, Question
from annotation.models import Label
from kgharvest.engine.harvest import encode_seeds
from kgharvest.engine.language_models.base import EncodedPrompt
from kgharvest.engine.language_models.causal import CausalLM
from kgharvest.engine.prompts.strategies import PromptSource, choose_prompts
from kgharvest.engine.scoring import compatibilities, consistency, entity_logprobs
from kgharvest.engine.types import BadSeed, HarvestParams, HarvestSpec, UnsupportedModel
from kgharvest.harvests import language_models
from kgharvest.models import LanguageModel

STATEMENTS_AT_ONCE = 64
PARAMS = HarvestParams()
ANSWER = "Answer:"  # end of a causal LM's prompt

Tick = Callable[[], None]


def load(run: JudgeRun) -> Any:
    language_model = LanguageModel.objects.get(name=run.model, revision=run.revision)
    return language_models.load(language_model, run.device, run.dtype)


def reported(lm: Any) -> str:
    return f"{lm.name} {lm.revision or ''}".strip()


def in_parts(questions: Sequence[Question]) -> Iterator[Sequence[Question]]:
    for start in range(0, len(questions), STATEMENTS_AT_ONCE):
        yield questions[start : start + STATEMENTS_AT_ONCE]


class CausalJudge:
    """Judge by the most likely continuation of the prompt: True, False, or Unjudgeable, each followed by a newline."""

    def __init__(self, run: JudgeRun):
        self._run, self._lm = run, load(run)
        if not isinstance(self._lm, CausalLM):
            raise UnsupportedModel(f"{run.model} is not a causal LM. Use kind score, or choose a causal LM.")

    def answers(self, questions: Sequence[Question], tick: Tick) -> Iterator[list[Answered]]:
        answers = [(self._lm.encode_entity(word),) for word in WRITTEN.values()]
        for part in in_parts(questions):
            start = monotonic()
            prompts = [self._encoded(question) for question in part]
            logprobs = entity_logprobs(self._lm, prompts, answers, PARAMS.batch_size, tick)[:, :, 0]  # (3, B)
            seconds = (monotonic() - start) / len(part)
            yield [self._answered(*row, seconds) for row in zip(part, prompts, logprobs.T, strict=True)]

    def _encoded(self, question: Question) -> EncodedPrompt:
        texts = self._run.relation_texts[str(question.judged.relation_id)]
        text = fill(self._run.prompt, question.judged.statement, texts).rstrip().removesuffix(ANSWER)
        self._lm.tokens.check_text(text)
        return EncodedPrompt((self._lm.tokens.encode_conversation([("user", text), ("assistant", ANSWER)]), ()), (0,))

    def _answered(self, question: Question, prompt: EncodedPrompt, logprobs: np.ndarray, seconds: float) -> Answered:
        label = list(WRITTEN)[int(logprobs.argmax())]
        probabilities = np.exp(logprobs - logprobs.max())
        return Answered(
            question,
            WRITTEN[label],
            reported(self._lm),
            n_prompt_tokens=len(prompt.segments[0]),
            seconds=seconds,
            score=float(probabilities[0] / probabilities.sum()),
            label=label,
        )


class ScoreJudge:
    """Label a tuple true if its score reaches the threshold, otherwise false.

    The score is the consistency (Eq. 2) or, for one prompt, the compatibility (Eq. 1).
    """

    def __init__(self, run: JudgeRun):
        self._run, self._lm = run, load(run)

    def answers(self, questions: Sequence[Question], tick: Tick) -> Iterator[list[Answered]]:
        by_relation = sorted(questions, key=lambda question: question.judged.relation_id)
        for relation_id, of_relation in groupby(by_relation, key=attrgetter("judged.relation_id")):
            score = self._scorer(self._run.relation_texts[str(relation_id)], tick)
            for part in in_parts(list(of_relation)):
                yield score(part)

    def _scorer(self, texts: dict[str, Any], tick: Tick) -> Callable[[Sequence[Question]], list[Answered]]:
        lm = self._lm
        seeds = tuple(map(tuple, texts["seed_tuples"]))
        spec = HarvestSpec("", tuple(texts["prompts"]), seeds, "human")
        source = PromptSource(spec, lm, encode_seeds(seeds, lm), None, lambda _: tick())
        prompt_set = choose_prompts(source).prompt_set

        def score(part: Sequence[Question]) -> list[Answered]:
            start = monotonic()
            writable, tuples, answers = [], [], []
            for question in part:
                try:
                    tuples.append(tuple(lm.encode_entity(entity) for entity in question.judged.entities))
                    writable.append(question)
                except BadSeed as fault:
                    answers.append(Answered(question, str(fault), reported(lm), label=""))
            fits = compatibilities(lm, prompt_set.prompts, tuples, PARAMS.alpha, PARAMS.batch_size, tick)
            seconds = (monotonic() - start) / len(part)
            for question, value in zip(writable, consistency(fits, np.array(prompt_set.weights)).tolist(), strict=True):
                label = Label.TRUE if value >= self._run.threshold else Label.FALSE
                score_text = f"score {value:.6f}"
                answers.append(Answered(question, score_text, reported(lm), seconds=seconds, score=value, label=label))
            return answers

        return score
