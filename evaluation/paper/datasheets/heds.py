"""The Human Evaluation Datasheet 3.0 of a study, as a page and as the JSON that its online form reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from evaluation.paper.datasheets import sentences
from evaluation.paper.datasheets.facts import StudyFacts, people
from evaluation.paper.datasheets.heds_questions import BY_NUMBER, CRITERION, QUESTIONS, SECTIONS, HedsQuestion, Kind
from evaluation.paper.files import PackFile
from evaluation.paper.statements import questions

CRITERION_NAME = "Truth"
OTHER_LANGUAGE = 185  # the form's option for a language by its name
NOT_APPLICABLE = "N/A"
SIMULATED = "The judgments are simulated, not people."
# What records tell of rounds that were judged here, and nobody knows of imported judgments.
ONLY_IF_JUDGED_HERE = frozenset({
    "3.2.2.4", "3.2.4", "3.2.5", "3.3.4.1", "3.3.4.2", "3.3.5", "3.3.6", "3.3.7", "3.3.8", "4.3.2", "4.3.5", "4.3.7",
})  # fmt: skip


class Source(StrEnum):
    """Where an answer comes from."""

    RECORDS = "from the records"
    PEOPLE = "as stated by the authors"
    MISSING = "missing"
    NOT_APPLICABLE = "not applicable"


class Answer(NamedTuple):
    """options: the numbers of the form's options that are chosen, each with a word for it."""

    text: str
    options: Mapping[int, str] = {}
    source: Source = Source.RECORDS

    @property
    def in_words(self) -> str:
        return "; ".join([*self.options.values(), *([self.text] if self.text else [])])


def heds_answers(facts: StudyFacts) -> dict[str, Answer]:
    """Return the answer to every question, by its number."""
    return {question.number: _answer(facts, question.number) for question in QUESTIONS}


def _answer(facts: StudyFacts, number: str) -> Answer:
    stated = [question for question in questions.QUESTIONS if number in question.places.heds]
    said = next((facts.answers[question.key] for question in stated if facts.answers.get(question.key)), "")
    if number == "3.3.1" and sentences.preregistration(facts) and says_no(said):
        said = ""  # at no registry; it was frozen here all the same
    if said and number in STATED:
        return STATED[number](facts, said)._replace(source=Source.PEOPLE)
    if facts.is_imported and number in ONLY_IF_JUDGED_HERE:
        missing = Answer(sentences.must_say(BY_NUMBER[number].label), source=Source.MISSING)
        return Answer(said, source=Source.PEOPLE) if said else missing
    if number in RECORDED and (number != "3.3.1" or sentences.preregistration(facts)):
        recorded = RECORDED[number](facts)
        return recorded._replace(text=f"{recorded.text} {said}".strip()) if said else recorded
    return Answer(sentences.must_say(stated[0].label), source=Source.MISSING)


class Coverage(NamedTuple):
    """How many of the questions that apply are answered from the records, by the authors, and not yet."""

    n_applicable: int
    n_from_records: int
    n_stated: int
    missing: Sequence[str]


def coverage(answers: Mapping[str, Answer]) -> Coverage:
    by_source = {source: [n for n, answer in answers.items() if answer.source == source] for source in Source}
    n_applicable = len(answers) - len(by_source[Source.NOT_APPLICABLE])
    return Coverage(
        n_applicable, len(by_source[Source.RECORDS]), len(by_source[Source.PEOPLE]), by_source[Source.MISSING]
    )


# -- what people say ---------------------------------------------------------------------------------------------------


def says_no(said: str) -> bool:
    return said.casefold().rstrip(".") in ("no", "none")


def _as_said(facts: StudyFacts, said: str) -> Answer:
    return Answer(said)


def _language(facts: StudyFacts, said: str) -> Answer:
    return Answer(said, {OTHER_LANGUAGE: "By name"})


def _option(options: Mapping[str, tuple[int, str]]) -> Callable[[StudyFacts, str], Answer]:
    return lambda facts, said: Answer("", dict([options[said]]))


YES_OR_NO = _option({"yes": (1, "Yes"), "no": (2, "No")})

STATED: Mapping[str, Callable[[StudyFacts, str], Answer]] = {
    "1.1.1": lambda facts, said: Answer(said, {1: "In the paper"}),
    "1.2": lambda facts, said: Answer(said, {1: "At this address"}),
    "1.3.2.1": _as_said,
    "1.3.2.2": _as_said,
    "1.3.2.3": _as_said,
    "2.4": _language,
    "2.5": _language,
    "3.2.2.1": YES_OR_NO,
    "3.2.2.2": _option({"money": (1, "With money"), "other": (2, "Otherwise"), "no": (3, "Not paid")}),
    "3.2.2.3": YES_OR_NO,
    "3.2.2.4": YES_OR_NO,
    "3.3.1": lambda facts, said: Answer("", {2: "No"}) if says_no(said) else Answer(said, {1: "Yes"}),
    "5.1": _as_said,
    "5.3": lambda facts, said: (
        Answer(facts.answers.get("personal_data", ""), {2: "Yes"}) if said == "yes" else Answer("", {1: "No"})
    ),
    "5.4": _as_said,
}

# -- what the records tell ---------------------------------------------------------------------------------------------


def _which_study(facts: StudyFacts) -> Answer:
    return Answer(
        f"Round {facts.round}, report {facts.report} of {facts.created_at[:10]}: whether statements are true that were "
        f"harvested by {sentences.systems(facts)}.{'' if facts.is_of_people else ' ' + SIMULATED}"
    )


def _selection(facts: StudyFacts) -> Answer:
    how = sentences.how_drawn(facts)
    option = {1: "Simple random sample"} if how == sentences.UNIFORM else {2: "Stratified random sample"}
    return Answer(sentences.HOW_DRAWN[how], option)


def _power(facts: StudyFacts) -> Answer:
    results = (f"{result}." for result in sentences.results(facts))
    return Answer(" ".join([*results, *sentences.precision(facts)]) or "Nothing is judged yet.")


def _researchers(facts: StudyFacts) -> Answer:
    came = facts.recruited
    if came.n_members:
        return Answer("", {1: "Yes"})
    if not came.n_guests:
        return Answer("", {2: "No"})
    guests = f"None of those with an account works in the project; {people(came.n_guests)} gave only a name or a link."
    return Answer(guests, {3: "Not known of guests"})


def _recruitment(facts: StudyFacts) -> Answer:
    return Answer(sentences.how_they_came(facts))


def _training(facts: StudyFacts) -> Answer:
    return Answer(f"Instructions come before the first statement (instructions.md). {sentences.training(facts)}")


def _characteristics(facts: StudyFacts) -> Answer:
    return Answer(f"{sentences.pace(facts)} The platform asked for no age, gender, origin or other trait.")


def _quality(facts: StudyFacts) -> Answer:
    conduct = facts.conduct
    has_gold = bool(conduct["gold"]["n_true"] + conduct["gold"]["n_false"])
    has_limits = conduct["limits"]["sentence"] != "none"
    in_force = any(exclusion["reinstated_at"] is None for exclusion in conduct["exclusions"])
    options = {
        2: "Automatic checks" if has_gold or has_limits else "",
        3: "Checks by people" if conduct["exclusions"] or conduct["adjudications"]["n_statements"] else "",
        4: "People excluded" if in_force else "",
    }
    chosen = {number: word for number, word in options.items() if word}
    if chosen:
        return Answer("", chosen)
    k = facts.design["judgments_per_task"]
    several = f"Several people ({k}) judged each statement." if k > 1 else "No check."
    return Answer(several, {6: "Other"} if k > 1 else {7: "None"})


def _how_quality(facts: StudyFacts) -> Answer:
    return Answer(
        " ".join([
            sentences.gold(facts), sentences.limits(facts), sentences.exclusions(facts),
            *sentences.exclusion_reasons(facts), sentences.adjudication(facts),
        ])
    )  # fmt: skip


def _seen(facts: StudyFacts) -> Answer:
    layout = "one statement" if facts.design["layout"] == "one" else "a page of statements"
    return Answer(
        f"{layout.capitalize()} at a time, which people could change; the three answers as buttons; the instructions, "
        "with what the relation means, one click away; how far they are. LM, setting, score, others' answers and which "
        "statements have known answers were not shown."
    )


def _freedom(facts: StudyFacts) -> Answer:
    return Answer(
        f"People judged when they liked while the round was open, in as many sittings as they liked; "
        f"{facts.design['batch_size']} statements at a time were reserved for them. {sentences.stopping(facts)}",
        {5: "Free"},
    )


def _no_power_of(facts: StudyFacts) -> Answer:
    return Answer(
        "Precision instead of power: the half-width of the exact 95 % interval of a finite population (Blaker's, of "
        "the hypergeometric distribution)."
    )


def _differences(facts: StudyFacts) -> Answer:
    if not facts.document["comparisons"]:
        return Answer("None: the study has one system, or two that share no two relations.")
    return Answer(
        "Differences of accuracies with 95 % intervals; sign-flip tests over relations from six relations on, else "
        "tests by statements; p adjusted by Holm; two one-sided tests of equivalence. All comparisons of the report: "
        + " ".join(sentences.comparisons(facts))
    )


def _agreement_value(facts: StudyFacts) -> Answer:
    return Answer(sentences.agreement(facts))


def _fixed(text: str, options: Mapping[int, str] | None = None) -> Callable[[StudyFacts], Answer]:
    return lambda facts: Answer(text, options or {})


def _not_applicable(why: str) -> Callable[[StudyFacts], Answer]:
    return lambda facts: Answer(f"{NOT_APPLICABLE}: {why}", source=Source.NOT_APPLICABLE)


RECORDED: Mapping[str, Callable[[StudyFacts], Answer]] = {
    "1.1.1": _fixed("This pack: methods.tex and the report in it.", {2: "In an unpublished report"}),
    "1.1.2": _which_study,
    "1.2": _fixed("The files of this pack; ro-crate-metadata.json lists them.", {1: "In this pack"}),
    "1.3.1.1": lambda facts: Answer(f"kgharvest {facts.code_version}, a program, from the records of the study."),
    "1.3.1.2": _fixed("None: a program filled it in. For the study see the contact author."),
    "1.3.1.3": _not_applicable("a program has no mail address."),
    "2.1": _fixed("", {1: "Seed tuples of a relation", 5: "Prompts, as sentences with slots"}),
    "2.2": _fixed("", {1: "Tuples of entities with scores"}),
    "2.3": lambda facts: Answer(f"Tuples of a relation. {sentences.origin(facts)}.", {20: "Other"}),
    "3.1.1": lambda facts: Answer(sentences.per_system(facts)),
    "3.1.2": _selection,
    "3.1.3.1": _no_power_of,
    "3.1.3.2": _power,
    "3.1.3.3": lambda facts: Answer(f"kgharvest/statistics/sample_size.py of kgharvest {facts.code_version}."),
    "3.2.1": lambda facts: Answer(str(sentences.n_evaluators(facts))),
    "3.2.2.4": _researchers,
    "3.2.3": _recruitment,
    "3.2.4": _training,
    "3.2.5": _characteristics,
    "3.3.1": lambda facts: Answer(sentences.preregistration(facts), {1: "Yes"}),
    "3.3.2": lambda facts: Answer(sentences.platform(facts)),
    "3.3.3.1": _quality,
    "3.3.3.2": _how_quality,
    "3.3.4.1": lambda facts: Answer(f"instructions.md here; the pages are those of kgharvest {facts.code_version}."),
    "3.3.4.2": _seen,
    "3.3.5": _freedom,
    "3.3.6": _fixed(
        "People could comment on each statement and report one that is broken, or skip it.", {4: "Other"}
    ),
    "3.3.7": _fixed("", {1: "Where they liked"}),
    "3.3.8": _fixed("Place, device, browser, hour and pauses were each person's choice."),
    "4.1.1": _fixed("", {1: "Correctness"}),
    "4.1.2": _fixed("", {2: "Content"}),
    "4.1.3": _fixed("", {3: "Against what is so in the world"}),
    "4.2.1": _fixed("", {2: "Subjective"}),
    "4.2.2": _fixed("", {1: "Absolute"}),
    "4.2.3": _fixed("", {1: "Intrinsic"}),
    "4.3.1.1": _fixed("Whether the statement is true."),
    "4.3.1.2": _fixed("Correctness of content against a frame of reference outside the system (4.1.1 to 4.1.3)."),
    "4.3.2": lambda facts: Answer(facts.instructions),
    "4.3.3": _fixed(str(len(sentences.LABELS))),
    "4.3.4": _fixed(", ".join(sentences.LABELS)),
    "4.3.5": _fixed("", {1: "One of several buttons"}),
    "4.3.6": _not_applicable("there are values to choose from."),
    "4.3.7": _fixed(f"The statement, and below it {', '.join(sentences.LABELS)}."),
    "4.3.8": _fixed("", {7: "A label for each output"}),
    "4.3.9": lambda facts: Answer(f"{sentences.verdict_rule(facts)} {sentences.estimator(facts)}"),
    "4.3.10": _differences,
    "4.3.11.1": _fixed("Krippendorff's alpha (nominal) and percent agreement."),
    "4.3.11.2": _agreement_value,
    "4.3.12.1": _fixed("Not assessed: nobody judges a statement twice."),
    "4.3.12.2": _fixed("Not assessed."),
    "5.2": lambda facts: Answer(sentences.data_of_people(facts), {2: "Yes, of those who judged"}),
}  # fmt: skip


# -- files -------------------------------------------------------------------------------------------------------------


def write_heds_page(facts: StudyFacts, files: Sequence[PackFile]) -> PackFile:
    answers = heds_answers(facts)
    covered = coverage(answers)
    lines = [
        "# Human Evaluation Datasheet 3.0",
        "",
        f"{covered.n_from_records} of {covered.n_applicable} questions that apply are answered from the records, "
        f"{covered.n_stated} by the authors; {len(covered.missing)} are still to be answered.",
    ]
    if covered.missing:
        lines += ["", f"{sentences.MUST_SAY}: {', '.join(covered.missing)}."]
    for section, title in SECTIONS.items():
        lines += ["", f"## {section}. {title}"]
        for question in QUESTIONS:
            if question.number.partition(".")[0] == section:
                lines += ["", f"### {question.number} {question.label}", "", *_in_markdown(answers[question.number])]
    content = "\n".join(lines) + "\n"
    return PackFile("heds.md", content.encode(), "text/markdown", "Human Evaluation Datasheet 3.0, to read.")


def _in_markdown(answer: Answer) -> list[str]:
    if answer.source == Source.MISSING:
        return [f"**{answer.text}**"]
    return answer.in_words.splitlines()


def write_heds_form(facts: StudyFacts, files: Sequence[PackFile]) -> PackFile:
    """Return what the online form reads: an entry by the name of each field. Fields without an answer are not in it."""
    form: dict[str, Any] = {
        CRITERION: {"data": {}, "control": {CRITERION_NAME: True}, "text": {}},
    }
    for number, answer in heds_answers(facts).items():
        if answer.source != Source.MISSING:
            form |= _fields(BY_NUMBER[number], answer)
    content = json.dumps(form, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    return PackFile(
        "heds.json", content.encode(), "application/json", "Human Evaluation Datasheet 3.0, for the form of nlp-heds."
    )


def _fields(question: HedsQuestion, answer: Answer) -> dict[str, Any]:
    part = CRITERION_NAME if question.field.startswith(CRITERION) else ""
    if question.kind is Kind.TEXT:
        return {question.field: {"data": {part: answer.text}, "control": {}, "number": question.number}}
    fields: dict[str, Any] = {
        f"{question.field}-{option}": {
            "data": {part: True}, "control": {}, "text": {part: word}, "number": question.number,
        }
        for option, word in answer.options.items()
    }  # fmt: skip
    if answer.text:
        fields[f"{question.field}-other_text"] = {"data": {part: answer.text}, "control": {}, "number": None}
    return fields
