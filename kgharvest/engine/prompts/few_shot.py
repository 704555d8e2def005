"""Few-shot prompts: seed tuples as worked examples before the tuple that a causal LM writes, one entity per line.

(1) is the capital of (2).
(1): Tokyo
(2): Japan

(1): <ENT0>
(2): <ENT1>

The text of the prompt contains the examples. It is stored and shown like the text of any prompt, and causal LMs encode
it unchanged (`is_in_lines`), so search, scoring, and later evaluations use the same conditional.
"""

import random
import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Literal, NamedTuple

from kgharvest.engine.prompts.template import SPACE_BEFORE_END, PromptTemplate

Form = Literal["lines", "lines with sentences", "sentences", "chat"]
Entities = Sequence[str]
Tuples = tuple[tuple[str, ...], ...]

MIN_EXAMPLES, MOST_EXAMPLES = 2, 8
MOST_PERMUTATIONS = 12
TURN = re.compile(r"^\[(user|assistant)\]\n", re.MULTILINE)


def blanks(prompt: PromptTemplate) -> list[str]:
    return [f"({number})" for number in range(1, prompt.arity + 1)]


def instruction(prompt: PromptTemplate) -> str:
    sentence = " ".join(prompt.fill(blanks(prompt)).split())
    return f"Fill in the blanks so that the sentence is true.\nSentence: {sentence}\n"


def lines_of(entities: Entities) -> str:
    return "\n".join(f"({number}): {entity}" for number, entity in enumerate(entities, start=1))


def sentence_about(prompt: PromptTemplate, entities: Entities) -> str:
    return SPACE_BEFORE_END.sub("", " ".join(prompt.fill(entities).split()))


def as_lines(prompt: PromptTemplate, tuples: Sequence[Entities]) -> str:
    """Write the sentence with blanks, then the entities of each tuple."""
    return f"{sentence_about(prompt, blanks(prompt))}\n" + "\n\n".join(map(lines_of, tuples))


def as_lines_with_sentences(prompt: PromptTemplate, tuples: Sequence[Entities]) -> str:
    """Write the entities of each tuple, then the sentence about them."""
    *examples, last = tuples
    return "".join(f"{lines_of(each)}\n{sentence_about(prompt, each)}\n\n" for each in examples) + lines_of(last)


def as_sentences(prompt: PromptTemplate, tuples: Sequence[Entities]) -> str | None:
    """Write the sentence about each tuple with a line break after each entity.

    Returns None if the slots are in another order or words follow the last one.
    """
    first, *between, last = (" ".join(text.split()) for text in prompt.segments)
    if prompt.slots != tuple(range(prompt.arity)) or re.search(r"\w", last):
        return None
    texts = [first or "-", *between]
    return "\n\n".join("\n".join(map(" ".join, zip(texts, entities, strict=True))) for entities in tuples)


def as_chat(prompt: PromptTemplate, tuples: Sequence[Entities]) -> str:
    """Write the instruction as the user and the entities of each tuple as the assistant."""
    return "\n".join(f"[user]\n{instruction(prompt)}[assistant]\n{lines_of(entities)}" for entities in tuples)


FORMS: dict[Form, Callable[[PromptTemplate, Sequence[Entities]], str | None]] = {
    "lines": as_lines,
    "lines with sentences": as_lines_with_sentences,
    "sentences": as_sentences,
    "chat": as_chat,
}


def with_examples(
    prompt: PromptTemplate, examples: Sequence[Entities], form: Form, negatives: Sequence[Entities] = ()
) -> PromptTemplate | None:
    """Return `prompt` with worked examples in this form, or None if the form does not suit the prompt.

    A prompt that is written in lines is returned unchanged. `negatives` are denied in sentences before the examples.
    """
    if is_in_lines(prompt):
        return prompt
    text = FORMS[form](prompt, [*examples, [f"<ENT{slot}>" for slot in range(prompt.arity)]])
    if text is None:
        return None
    if negatives:
        denials = "".join(f"It is not true that {sentence_about(prompt, entities)}\n" for entities in negatives)
        role = TURN.match(text)
        text = f"{role[0]}{denials}{text[role.end() :]}" if role else f"{denials}\n{text}"
    return PromptTemplate.parse(text)


class FewShot(NamedTuple):
    """A prompt with worked examples. The form must suit the prompt."""

    base: PromptTemplate
    examples: Tuples
    form: Form
    negatives: Tuples = ()

    def template(self) -> PromptTemplate:
        written = with_examples(*self)
        assert written is not None, "the form does not suit the prompt"
        return written


def is_in_lines(prompt: PromptTemplate) -> bool:
    """Return whether the prompt ends with lines that consist of a label and a slot each, in slot order."""
    first, *between, last = prompt.segments
    return (
        prompt.slots == tuple(range(prompt.arity))
        and "\n" in first
        and all(text.startswith("\n") and text.count("\n") == 1 for text in between)
        and not last.strip()
    )


def turns(text: str) -> list[tuple[str, str]]:
    """Split a text at the marks [user] and [assistant]. Return role and text of each turn, or nothing without marks."""
    _, *pieces = TURN.split(text)
    roles, texts = pieces[::2], pieces[1::2]
    return [(role, text.rstrip("\n") if role == "assistant" else text) for role, text in zip(roles, texts, strict=True)]


def permutations(examples: Tuples, n: int, rng: random.Random) -> list[Tuples]:
    """Return at most `n` distinct random orders of the examples, without the given one."""
    orders = dict.fromkeys(tuple(rng.sample(examples, len(examples))) for _ in range(20 * n))
    return list(islice((order for order in orders if order != examples), n))
