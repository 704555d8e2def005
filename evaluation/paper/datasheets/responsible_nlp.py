"""Answers to part D of the checklist for responsible NLP of the ACL Rolling Review, on research with people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evaluation.paper.datasheets import sentences
from evaluation.paper.datasheets.facts import StudyFacts
from evaluation.paper.files import PackFile
from evaluation.paper.statements.questions import BY_KEY

TITLES = {
    "D1": "Instructions in full",
    "D2": "Recruitment and pay",
    "D3": "Consent",
    "D4": "Ethics board",
    "D5": "Demographics",
}


def write_responsible_nlp(facts: StudyFacts, files: Sequence[PackFile]) -> PackFile:
    lines = ["# Responsible NLP checklist, part D: people", "", *_head(facts)]
    for number, title in TITLES.items():
        lines += ["", f"## {number}. {title}", "", *ANSWERS[number](facts)]
    content = "\n".join(lines) + "\n"
    return PackFile(
        "responsible-nlp.md",
        content.encode(),
        "text/markdown",
        "Answers to D1 to D5 of ARR's Responsible NLP checklist.",
    )


def _head(facts: StudyFacts) -> Iterator[str]:
    yield f"Of the round {facts.round}, report {facts.report} of {facts.created_at}."
    if not facts.is_of_people:
        yield ""
        yield "The judgments are simulated, not people: this part does not apply to them."


def said(facts: StudyFacts, key: str) -> str:
    """Return what people said, in the words of a choice where it is one, or what they must say."""
    question = BY_KEY[key]
    answer = facts.answers.get(key, "")
    if not answer:
        return f"**{sentences.must_say(question.label)}**"
    return dict(question.choices).get(answer, answer)


def _instructions(facts: StudyFacts) -> Iterator[str]:
    if facts.is_imported:
        yield "Judgments were imported; the records do not tell what people read. The round has these instructions:"
    else:
        yield (
            f"Annotators read the instructions before the first statement and could open them at any time. The whole "
            f"text (SHA-256 {facts.instructions_sha256}):"
        )
    yield ""
    yield from quoted(facts.instructions)
    for relation in facts.relations:
        if relation.guide:
            yield ""
            yield f"Beside statements of {relation.name}:"
            yield ""
            yield from quoted(relation.guide)
    yield ""
    yield sentences.training(facts)


def quoted(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield f"> {line}".rstrip()


def _recruitment(facts: StudyFacts) -> Iterator[str]:
    yield sentences.how_they_came(facts)
    yield ""
    yield f"- Recruitment: {said(facts, 'recruitment')}"
    yield f"- Pay: {said(facts, 'pay')}"
    yield f"- Amount and adequacy: {said(facts, 'pay_adequacy')}"
    yield f"- Funding: {said(facts, 'funding')}"
    yield f"- Work: {sentences.pace(facts)}"


def _consent(facts: StudyFacts) -> Iterator[str]:
    yield sentences.consent(facts)
    if facts.consent:
        yield ""
        yield from quoted(facts.consent)
    yield ""
    yield f"- How the data would be used: {said(facts, 'consent')}"


def _ethics(facts: StudyFacts) -> Iterator[str]:
    yield said(facts, "ethics_board")


def _demographics(facts: StudyFacts) -> Iterator[str]:
    yield said(facts, "demographics")
    yield ""
    yield "The platform asked for no age, gender, origin or other trait, and recorded none."


ANSWERS = {"D1": _instructions, "D2": _recruitment, "D3": _consent, "D4": _ethics, "D5": _demographics}


def write_instructions(facts: StudyFacts, files: Sequence[PackFile]) -> PackFile:
    """Return what annotators read, in full."""
    lines = ["# Instructions", "", *_instructions(facts)]
    if facts.consent:
        lines += ["", "# Consent", "", f"SHA-256 {facts.consent_sha256}:", "", *quoted(facts.consent)]
    content = "\n".join(lines) + "\n"
    return PackFile(
        "instructions.md", content.encode(), "text/markdown", "What annotators read and agreed to, in full."
    )
