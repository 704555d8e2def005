"""Paraphraser based on an OpenAI-compatible chat endpoint."""

import re
from collections.abc import Sequence
from typing import Any

from kgharvest.engine.chat_completions import ChatClient, ChatFailed, NoCompletion
from kgharvest.engine.types import Paraphraser

API_KEY_VARIABLE = "KGHARVEST_PARAPHRASER_API_KEY"
PARAPHRASES_PER_CALL = 10
REPLY_TOKENS = 1000
CHARACTERS_PER_TOKEN = 4  # estimate for endpoints that do not report token counts
MOST_WORDS = 60  # per paraphrase; longer paraphrases lose the meaning and may exceed the LM's context


class ParaphraserFailed(ChatFailed):
    """Raised if a paraphraser is unreachable, rejects a request, exceeds its spending cap, or returns invalid text."""


class ChatParaphraser(Paraphraser):
    """Chat model as paraphraser. The key is read from KGHARVEST_PARAPHRASER_API_KEY. If it is unset, no key is sent.

    max_calls, max_tokens: spending caps on requests, and on the total number of tokens of questions and answers.
    options: further arguments of `ChatClient`.
    """

    def __init__(
        self, base_url: str, model: str, max_calls: int = 100, max_tokens: int = 100_000, **options: Any
    ) -> None:
        self.name = f"chat:{model}"
        self.n_calls = self.n_tokens = 0
        self._max_calls, self._max_tokens = max_calls, max_tokens
        self._client = ChatClient(
            "The paraphraser",
            base_url,
            model,
            API_KEY_VARIABLE,
            advice="check the address, try later, or use the offline paraphraser",
            before_request=self._spend_a_call,
            failure=ParaphraserFailed,
            **options,
        )

    def paraphrase(self, sentence: str, entities: Sequence[str]) -> list[str]:
        question = instruction(sentence, entities)
        try:
            answer = self._client.complete(question, REPLY_TOKENS)
        except NoCompletion as fault:
            raise ParaphraserFailed(str(fault)) from None
        counts = (answer.n_prompt_tokens, answer.n_completion_tokens)
        n_tokens = sum(count or 0 for count in counts)
        self.n_tokens += n_tokens or len(question + answer.text) // CHARACTERS_PER_TOKEN
        return sentences_of(answer.text)

    def _spend_a_call(self) -> None:
        if self.n_calls >= self._max_calls or self.n_tokens + REPLY_TOKENS > self._max_tokens:
            raise ParaphraserFailed(
                f"The paraphraser has used {self.n_calls} of {self._max_calls} calls and {self.n_tokens} of "
                f"{self._max_tokens} tokens. Increase its spending cap or use fewer initial prompts."
            )
        self.n_calls += 1


def instruction(sentence: str, entities: Sequence[str]) -> str:
    expressions = ", ".join(f'"{entity}"' for entity in entities)
    return (
        f"Write {PARAPHRASES_PER_CALL} paraphrases of the sentence below, as different from each other as you can, but "
        "of the same meaning and in plain English.\n"
        f"Each one must contain each of these expressions exactly once, unchanged: {expressions}.\n"
        "Write one paraphrase a line and nothing else: no numbers, no quotation marks, no comments.\n\n"
        f"Sentence: {sentence}"
    )


def sentences_of(answer: str) -> list[str]:
    """Return the lines of `answer` without thoughts, list markers, and quotation marks. Omits lines over MOST_WORDS."""
    lines = re.sub(r"<think>.*?</think>", "", answer, flags=re.DOTALL).splitlines()
    unmarked = (re.sub(r"^\s*(?:[-*•]|\(?\d+[.):])\s*", "", line).strip() for line in lines)
    sentences = (re.sub(r'^["“](.*)["”]$', r"\1", line).strip() for line in unmarked)
    return [sentence for sentence in sentences if sentence and len(sentence.split()) <= MOST_WORDS]
