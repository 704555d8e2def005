"""CITATION.cff, the licence of the data, and the list of what people must still say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from evaluation.paper.datasheets.facts import StudyFacts
from evaluation.paper.datasheets.sentences import must_say, unsaid
from evaluation.paper.files import PackFile
from evaluation.paper.statements.questions import BY_KEY, Question, authors_of

CFF_VERSION = "1.2.0"
SPDX = "https://spdx.org/licenses/"


def licence_url(facts: StudyFacts) -> str:
    """Return the address of the licence, empty while nobody has said which one."""
    name = facts.answers.get("licence", "")
    return f"{SPDX}{name}" if name else ""


def write_citation(facts: StudyFacts, files: Sequence[PackFile]) -> PackFile:
    """Return CITATION.cff 1.2.0. What is not said stands in a comment, and as an entity that the format asks for."""
    content = "\n".join(_citation(facts)) + "\n"
    return PackFile("CITATION.cff", content.encode(), "application/yaml", "How to cite the data.")


def _citation(facts: StudyFacts) -> Iterator[str]:
    answers = facts.answers
    for question in unsaid(facts):
        if question.places.citation:
            yield f"# {must_say(question.label)}"
    yield f"cff-version: {CFF_VERSION}"
    yield 'message: "If you use these data, cite them as below."'
    yield "type: dataset"
    yield f"title: {_yaml(answers.get('title') or must_say(BY_KEY['title'].label))}"
    yield "authors:"
    yield from _authors(facts)
    if licence := answers.get("licence"):
        yield f"license: {licence}"
    for key in ("url", "repository-artifact"):
        if address := next((answers.get(q.key) for q in BY_KEY.values() if q.places.citation == key), None):
            yield f"{key}: {_yaml(address)}"
    yield f"date-released: {facts.created_at[:10]}"
    yield f"version: {_yaml(f'report {facts.report}')}"


def _authors(facts: StudyFacts) -> Iterator[str]:
    for author in authors_of(facts.answers):
        yield f"  - {'family-names' if author.given else 'name'}: {_yaml(author.family)}"
        if author.given:
            yield f"    given-names: {_yaml(author.given)}"
            if author.affiliation:  # the format has none of an entity
                yield f"    affiliation: {_yaml(author.affiliation)}"
    if not facts.answers.get("authors"):
        yield f"  - name: {_yaml(must_say(BY_KEY['authors'].label))}"


def _yaml(text: str) -> str:
    """Return a string of YAML; those of JSON are."""
    return json.dumps(text, ensure_ascii=False)


def write_licence(facts: StudyFacts, files: Sequence[PackFile]) -> PackFile:
    content = "\n".join(_licence(facts)) + "\n"
    return PackFile("LICENSE", content.encode(), "text/plain", "Licence of the data.")


def _licence(facts: StudyFacts) -> Iterator[str]:
    name = facts.answers.get("licence", "")
    if not name:
        yield f"{must_say(BY_KEY['licence'].label)} Until then nobody may copy the files."
        return
    yield f"SPDX-License-Identifier: {name}"
    holders = ", ".join(author.name for author in authors_of(facts.answers))
    yield f"Copyright {facts.created_at[:4]} {holders}" if holders else must_say(BY_KEY["authors"].label)
    yield ""
    yield f"The text is at {SPDX}{name}.html"


def write_missing(facts: StudyFacts, files: Sequence[PackFile]) -> PackFile:
    lines = ["# You must say", "", *_missing(facts)]
    content = "\n".join(lines) + "\n"
    return PackFile("MISSING.md", content.encode(), "text/markdown", "What no record tells, and nobody has said yet.")


def _missing(facts: StudyFacts) -> Iterator[str]:
    questions = unsaid(facts)
    if not questions:
        yield "Nothing: everything that only people can say has been said."
        return
    yield (
        "No record tells these, and nobody has said them yet. Say them on the report's page, under “Say for a paper”; "
        "then make the pack anew."
    )
    yield ""
    yield from map(_line, questions)


def _line(question: Question) -> str:
    places = f" ({question.places.in_words})" if question.places.in_words else ""
    help_text = f" {question.help_text}" if question.help_text else ""
    return f"- **{question.label}**{places}.{help_text}"
