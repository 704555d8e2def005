"""E-KAR analogies (Chen et al. 2022) as relations, as in BertNet's relation set Auto (section 4.1)."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from kgharvest.bulk.file_reading import Line, read_json_objects
from kgharvest.errors import BadEntry, Faults
from kgharvest.relations.checks import RelationEntry

SHAPE = 'is not an analogy of E-KAR with "question", "choices", "answerKey", and "explanation"'
CLAUSE_END = re.compile(r"[,;.](?=\s|$)|$")
WORD = re.compile(r"\b(?!(?:and|or|both|a|an|the)\b)[^\W\d_]+", re.IGNORECASE)
SLOT = re.compile(r"<ENT\d>")


def ekar_entries(lines: Iterable[str], source: str) -> tuple[list[RelationEntry], str]:
    """Return one relation per analogy of two pairs, and a description with the numbers of skipped analogies by reason.

    The seed tuples are the pair in the question and the correct choice. The initial prompt is extracted from the
    explanation of the question, or of the correct choice. Raises ImportRefused with every invalid line.
    """
    entries: list[RelationEntry] = []
    skipped: Counter[str] = Counter()
    faults = Faults()
    for line in read_json_objects(lines):
        try:
            entry = line if isinstance(line, BadEntry) else _entry(line)
        except (KeyError, TypeError, AttributeError):
            entry = BadEntry(f"line {line.number}", SHAPE)
        if isinstance(entry, BadEntry):
            faults.add(entry)
        elif isinstance(entry, str):
            skipped[entry] += 1
        else:
            entries.append(entry)
    faults.refuse(source)
    reasons = "".join(f" Skipped: {n:,} {reason}." for reason, n in sorted(skipped.items()))
    return (
        entries,
        f"Relations from {len(entries):,} of {len(entries) + skipped.total():,} analogies of E-KAR.{reasons}",
    )


def _entry(line: Line) -> RelationEntry | str:
    """Return the relation of an analogy, or the reason to skip it."""
    labels, texts, answer = (*map(line.value["choices"].get, ("label", "text")), line.value.get("answerKey"))
    if answer not in labels[: len(texts)]:
        return "without an answer"
    choice = labels.index(answer)
    pairs = [[part.strip() for part in re.split("[:：]", text)] for text in (line.value["question"], texts[choice])]
    if [len(pair) for pair in pairs] != [2, 2] or not all(map(all, pairs)) or pairs[0] == pairs[1]:
        return "not of two different pairs"
    explanations = line.value["explanation"]
    explained = zip([*explanations[:1], *explanations[choice + 1 :]], pairs, strict=False)
    prompt = next(filter(None, (prompt_of(explanation, pair) for explanation, pair in explained)), None)
    if prompt is None:
        return "whose explanations do not name both entities once"
    return RelationEntry(f"line {line.number}", f"EKAR_{line.value.get('id') or line.number}", [prompt], pairs)


def prompt_of(explanation: str, entities: Sequence[Any]) -> str | None:
    """Return the first clauses of `explanation` that name every entity, with slots. None if they repeat an entity."""
    text = explanation.strip()
    for entity in sorted(entities, key=len, reverse=True):  # an entity can contain a shorter one
        pattern = rf"[\"“]?(?<!\w){re.escape(entity)}(?P<plural>s?)(?!\w)[\"”]?"
        text = re.sub(pattern, rf"<ENT{entities.index(entity)}>\g<plural>", text, flags=re.IGNORECASE)
    for end in CLAUSE_END.finditer(text):
        clause = text[: end.start()]
        slots = SLOT.findall(clause)
        if len(set(slots)) == len(entities) and WORD.search(SLOT.sub("", clause)):
            return f"{clause[0].upper()}{clause[1:]} ." if len(slots) == len(entities) else None
    return None
