"""Human Evaluation Datasheet (HEDS) 3.0 (Belz and Thomson 2025) of a study, and JSON for the online form of HEDS.

heds_questions.json lists the 62 questions for a study of one criterion, in this project's wording. It also contains the
names of the questions' fields in the form at nlp-heds.github.io.
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from kgharvest.contrib.publishing.datasheets.facts import Facts
from kgharvest.contrib.publishing.datasheets.filters import missing_answer
from kgharvest.contrib.publishing.packs.archive import PackFile
from kgharvest.contrib.publishing.statements import services as statements

CRITERION = "heds-criteria-criterion"
CRITERION_NAME = "Truth"


class HedsQuestion(NamedTuple):
    """A question of the datasheet.

    field: name of the question's form field. kind: "text", "one" (one option, with a text if the option requires one),
    or "many" (all applicable options). options: options by number, limited to those that answers use. chosen: numbers
    of the options that apply unless the records determine other options. stated: mapping from the authors' answers to
    the options that they select; the key "" stands for any other answer. The authors' answer then replaces the recorded
    answer. If `stated` is None, the authors' answer is appended to the recorded text. unknown_if_imported: True if the
    records contain no answer for imported judgments.
    """

    number: str
    label: str
    field: str
    kind: str
    options: Mapping[str, str] = {}
    chosen: Sequence[int] = ()
    stated: Mapping[str, int] | None = None
    unknown_if_imported: bool = False
    not_applicable: bool = False

    @property
    def section(self) -> str:
        return self.number.partition(".")[0]


DATA = json.loads(Path(__file__).with_name("heds_questions.json").read_text(encoding="utf-8"))
SECTIONS: Mapping[str, str] = DATA["sections"]
QUESTIONS = tuple(HedsQuestion(**question) for question in DATA["questions"])


class Source(StrEnum):
    """Origin of an answer."""

    RECORDS = "from the records"
    PEOPLE = "as stated by the authors"
    MISSING = "missing"
    NOT_APPLICABLE = "not applicable"


class Answer(NamedTuple):
    """Answer to a question of the datasheet. options: labels of the chosen options, by number."""

    text: str
    options: Mapping[int, str] = {}
    source: Source = Source.RECORDS

    @property
    def in_words(self) -> str:
        return ": ".join(filter(None, ["; ".join(self.options.values()), self.text]))


def heds_answers(study: Facts, texts: Mapping[str, str]) -> dict[str, Answer]:
    """Return the answers by question number. texts: recorded answers from the template heds_answers.txt."""
    texts = {**texts, "4.3.2": study["instructions"]}  # verbatim, with line breaks
    recruited = study["recruited"]
    options = {  # options that depend on the records
        "3.1.2": [1 if study["draw"] == "simple" else 2],
        "3.2.2.4": [1 if recruited["n_members"] else 3 if recruited["n_guests"] else 2],
        "3.3.1": [1],
        "3.3.3.1": study["checks"] or [6 if study["design"]["judgments_per_task"] > 1 else 7],
    }
    return {question.number: _answer(study, question, texts, options) for question in QUESTIONS}


def _answer(
    study: Facts, question: HedsQuestion, texts: Mapping[str, str], options: Mapping[str, Sequence[int]]
) -> Answer:
    number, answers = question.number, study["answers"]
    asked = [asked for asked in statements.QUESTIONS if number in asked.places.heds]
    stated = next((answers[other.key] for other in asked if answers.get(other.key)), "")
    is_recorded = number in texts
    if number == "3.3.1":
        is_recorded = bool(texts[number])
        stated = stated.rstrip(".").casefold() if stated.rstrip(".").casefold() in question.stated else stated
        if is_recorded and stated in question.stated:
            stated = ""  # the authors' answer is about registries, but the study is preregistered in kgharvest
    if stated and question.stated is not None:
        option = question.stated.get(stated, question.stated.get(""))
        text = "" if stated in question.stated else stated
        if number == "5.3" and stated == "yes":
            text = answers.get("personal_data", "")
        return Answer(text, _labelled(question, [option] if option else []), Source.PEOPLE)
    if study["is_imported"] and question.unknown_if_imported:
        if stated:
            return Answer(stated, source=Source.PEOPLE)
        is_recorded = False
    if not is_recorded:
        return Answer(missing_answer(asked[0].label if asked else question.label), source=Source.MISSING)
    source = Source.NOT_APPLICABLE if question.not_applicable else Source.RECORDS
    chosen = _labelled(question, options.get(number, question.chosen))
    return Answer(f"{texts[number]} {stated}".strip(), chosen, source)


def _labelled(question: HedsQuestion, chosen: Sequence[int]) -> dict[int, str]:
    return {option: question.options[str(option)] for option in chosen}


def coverage(answers: Mapping[str, Answer]) -> dict[str, list[str]]:
    """Return the numbers of questions by source of the answer.

    The key "applicable" has the numbers of all applicable questions.
    """
    numbers = {
        source.name.lower(): [number for number, answer in answers.items() if answer.source == source]
        for source in Source
    }
    return numbers | {"applicable": [number for number in answers if number not in numbers["not_applicable"]]}


def form_file(answers: Mapping[str, Answer]) -> PackFile:
    """Return the JSON for the online form: an entry for each field with an answer."""
    form: dict[str, Any] = {CRITERION: {"data": {}, "control": {CRITERION_NAME: True}, "text": {}}}
    for question in QUESTIONS:
        if answers[question.number].source != Source.MISSING:
            form |= _fields(question, answers[question.number])
    content = json.dumps(form, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    about = "Human Evaluation Datasheet 3.0, for the online form of nlp-heds."
    return PackFile("heds.json", content.encode(), "application/json", about)


def _fields(question: HedsQuestion, answer: Answer) -> dict[str, Any]:
    part = CRITERION_NAME if question.field.startswith(CRITERION) else ""
    if question.kind == "text":
        return {question.field: {"data": {part: answer.text}, "control": {}, "number": question.number}}
    fields: dict[str, Any] = {
        f"{question.field}-{option}": {
            "data": {part: True}, "control": {}, "text": {part: label}, "number": question.number,
        }
        for option, label in answer.options.items()
    }  # fmt: skip
    if answer.text:
        fields[f"{question.field}-other_text"] = {"data": {part: answer.text}, "control": {}, "number": None}
    return fields
