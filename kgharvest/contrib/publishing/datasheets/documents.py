"""Documents about a study, rendered from the facts with the templates in templates/publishing/datasheets."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.conf import settings
from django.template import Context, Engine
from django.template.loader_tags import BlockNode

from evaluation.evidence.tables import TABLES
from evaluation.reports.sections.conduct import design_table, exclusion_table, flow_table
from kgharvest.contrib.publishing.datasheets import croissant, heds, ro_crate
from kgharvest.contrib.publishing.datasheets.facts import Facts, with_derived
from kgharvest.contrib.publishing.packs.archive import PackFile
from kgharvest.tables.latex import latex_of

TEMPLATES = Engine(
    dirs=[settings.BASE_DIR / "templates" / "publishing" / "datasheets"],
    builtins=["kgharvest.contrib.publishing.datasheets.filters"],
    autoescape=False,  # no document is HTML
)
SHA256 = re.compile(r"\b[0-9a-f]{64}\b")
MARKDOWN = "text/markdown"


def datasheets(facts: Facts, files: Iterable[PackFile]) -> list[PackFile]:
    """Return the documents about a study.

    files: the other files of the package; Croissant and RO-Crate describe them.
    """
    study = study_of(facts)
    sheets = [*_text_documents(study), heds.form_file(study["heds"])]
    sheets.append(croissant.croissant_file(study, [*files, *sheets]))
    sheets.append(ro_crate.ro_crate_file(study, [*files, *sheets]))
    return sheets


def card_file(facts: Facts, files: Sequence[PackFile]) -> PackFile:
    """Return the data set card in the Hugging Face format. files: the other files of the package."""
    paths = {file.path for file in files}
    configs = [table for table in TABLES if table.parquet in paths]
    title = facts["answers"].get("title") or facts["round"]
    context = {**facts, "files": files, "configs": configs, "title": title}
    return PackFile("README.md", _rendered("README.md", context, MARKDOWN).encode(), MARKDOWN, "This card.")


def study_of(facts: Facts) -> dict[str, Any]:
    """Return the facts with derived values and texts in `say` (sentences), `heds` (answers), and `rai` (paragraphs)."""
    study = with_derived(facts)
    study["say"] = {}
    for name, text in _blocks("sentences.txt", study):
        study["say"][name] = " ".join(text.split())
    texts = {name: " ".join(text.split()) for name, text in _blocks("heds_answers.txt", study)}
    study["heds"] = heds.heds_answers(study, texts)
    study["rai"] = {
        name: list(filter(None, map(str.strip, text.split("\n\n")))) for name, text in _blocks("croissant.txt", study)
    }
    return study


def _blocks(name: str, study: Facts) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each block of a template."""
    template, context = TEMPLATES.get_template(name), Context(dict(study), autoescape=False)
    with context.bind_template(template):
        for block in template.nodelist.get_nodes_by_type(BlockNode):
            yield block.name, block.nodelist.render(context)


def _rendered(template: str, context: Facts, media_type: str) -> str:
    text = TEMPLATES.get_template(template).render(Context(dict(context), autoescape=False)).strip() + "\n"
    return re.sub(r"\n{3,}", "\n\n", text) if media_type == MARKDOWN else text


def _text_documents(study: Facts) -> list[PackFile]:
    tables = [flow_table(study["document"]), design_table(study["document"])]
    if study["conduct"]["exclusions"]:
        tables.append(exclusion_table(study["document"]))
    contexts = {
        "methods.tex": {"tables": latex_of(study["round"], tables)},
        "heds.md": {
            "coverage": heds.coverage(study["heds"]),
            "sections": heds.SECTIONS,
            "answered": [(question, study["heds"][question.number]) for question in heds.QUESTIONS],
        },
    }

    def file(path: str, media_type: str, description: str, template: str = "") -> PackFile:
        text = _rendered(template or path, {**study, **contexts.get(path, {})}, media_type)
        if path == "methods.tex":  # shorten hashes, because a hash is wider than a column
            text = SHA256.sub(lambda match: r"\allowbreak ".join(re.findall(".{8}", match[0])), text)
        return PackFile(path, text.encode(), media_type, description)

    return [
        file("instructions.md", MARKDOWN, "Full instructions and consent text for annotators."),
        file("methods.tex", "application/x-tex", "Methods paragraph and appendix in LaTeX."),
        file("responsible-nlp.md", MARKDOWN, "Answers to D1 to D5 of ARR's Responsible NLP checklist."),
        file("heds.md", MARKDOWN, "Human Evaluation Datasheet 3.0 as readable text."),
        file("CITATION.cff", "application/yaml", "Citation of the data."),
        file("LICENSE", "text/plain", "License of the data.", "LICENSE.txt"),
        file("MISSING.md", MARKDOWN, "Unanswered questions about the study."),
    ]
