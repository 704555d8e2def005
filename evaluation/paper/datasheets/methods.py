"""The methods of a study in LaTeX: a paragraph for the paper and an appendix, each number as in the report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from evaluation.paper.datasheets import sentences
from evaluation.paper.datasheets.facts import StudyFacts
from evaluation.paper.files import PackFile
from evaluation.reports.sections.conduct import design_table, exclusion_table, flow_table
from kgharvest.tables.latex import latex_of, latex_text

SHA256 = re.compile(r"\b[0-9a-f]{64}\b")
PREAMBLE = (
    "% Two parts to copy: the paragraph, and the appendix. Both are fragments; the preamble needs",
    r"% \usepackage{booktabs,longtable}, and with pdfLaTeX",
    r"% \usepackage[utf8]{inputenc} \usepackage[T1]{fontenc}.",
    "% Every number is that of the report; change the study, not the numbers.",
)


def write_methods(facts: StudyFacts, files: Sequence[PackFile]) -> PackFile:
    parts = [*PREAMBLE, "", *_paragraph(facts), "", *_appendix(facts)]
    content = SHA256.sub(_breakable, "\n".join(parts) + "\n")
    return PackFile("methods.tex", content.encode(), "application/x-tex", "Methods paragraph and appendix in LaTeX.")


def _breakable(sha256: re.Match[str]) -> str:
    """Return a hash that LaTeX may break, as it is wider than a column."""
    return r"\allowbreak ".join(re.findall(".{8}", sha256[0]))


def _paragraph(facts: StudyFacts) -> Iterator[str]:
    yield r"\paragraph{Human evaluation.}"
    for sentence in (
        f"We evaluate {sentences.systems(facts)}.",
        sentences.preregistration(facts),
        sentences.sample(facts),
        sentences.judging(facts),
        sentences.verdict_rule(facts),
        *([sentences.judge(facts)] if facts.judges else ()),
        sentences.training(facts),
        sentences.gold(facts),
        sentences.exclusions(facts),
        sentences.pace(facts),
        sentences.agreement(facts),
        sentences.estimator(facts),
    ):
        if sentence:
            yield latex_text(sentence)


def _appendix(facts: StudyFacts) -> Iterator[str]:
    yield r"\subsection*{Details of the human evaluation}"
    for title, lines in _sections(facts):
        yield rf"\paragraph{{{latex_text(title)}.}}"
        yield from map(latex_text, filter(None, lines))
        yield ""
    yield r"\paragraph{Results.}"
    yield from _list(sentences.results(facts))
    if compared := list(sentences.comparisons(facts)):
        yield r"\paragraph{Comparisons.}"
        yield from _list(compared)
    yield from _must_say(facts)
    tables = [flow_table(facts.document), design_table(facts.document)]
    if facts.conduct["exclusions"]:
        tables.append(exclusion_table(facts.document))
    yield latex_of(facts.round, tables)


def _sections(facts: StudyFacts) -> Iterator[tuple[str, Iterable[str]]]:
    yield "Systems", (f"{sentences.systems(facts)}.", sentences.revisions(facts))
    yield "Sample", (sentences.sample(facts), sentences.sensitive(facts), sentences.completeness(facts))
    if registered := sentences.preregistration(facts):
        yield "Preregistration", (registered,)
    said_of_people = (sentences.answer(facts, key) for key in ("recruitment", "pay_adequacy", "demographics"))
    yield "People", (sentences.how_they_came(facts), *said_of_people, sentences.pace(facts))
    yield "Consent", (sentences.consent(facts), sentences.answer(facts, "consent"))
    if board := sentences.answer(facts, "ethics_board"):
        yield "Ethics board", (board,)
    yield "Training", (sentences.training(facts),)
    yield "Statements with known answers", (sentences.gold(facts), sentences.limits(facts))
    yield "Judgments", (sentences.judging(facts), sentences.dates(facts), sentences.stopping(facts))
    yield "Verdicts", (sentences.verdict_rule(facts), sentences.adjudication(facts))
    yield "Exclusions", (sentences.exclusions(facts),)
    yield "LM judges", (sentences.judge(facts),)
    yield "Agreement", (sentences.agreement(facts),)
    yield "Instructions", (f"In full in instructions.md (SHA-256 {facts.instructions_sha256}).",)
    yield "How the numbers were computed", (facts.document["method"],)
    if notes := list(sentences.notes(facts)):
        yield "Notes", notes


def _list(sentences_of_it: Iterable[str]) -> Iterator[str]:
    items = list(sentences_of_it)
    if items:
        yield r"\begin{itemize}"
        yield from (rf"\item {latex_text(item)}" for item in items)
        yield r"\end{itemize}"


def _must_say(facts: StudyFacts) -> Iterator[str]:
    if unsaid := sentences.unsaid(facts):
        yield r"\paragraph{Still to be said.}"
        yield from _list(sentences.must_say(question.label) for question in unsaid)
