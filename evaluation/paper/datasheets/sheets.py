"""All documents about a study, in the order in which they are written: later ones name the earlier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from evaluation.paper.datasheets.citation import write_citation, write_licence, write_missing
from evaluation.paper.datasheets.croissant import write_croissant
from evaluation.paper.datasheets.facts import StudyFacts
from evaluation.paper.datasheets.heds import write_heds_form, write_heds_page
from evaluation.paper.datasheets.methods import write_methods
from evaluation.paper.datasheets.responsible_nlp import write_instructions, write_responsible_nlp
from evaluation.paper.datasheets.ro_crate import write_ro_crate
from evaluation.paper.files import PackFile

DATASHEETS: tuple[Callable[[StudyFacts, Sequence[PackFile]], PackFile], ...] = (
    write_instructions,
    write_methods,
    write_responsible_nlp,
    write_heds_page,
    write_heds_form,
    write_citation,
    write_licence,
    write_missing,
    write_croissant,
    write_ro_crate,
)


def datasheets(facts: StudyFacts, files: Iterable[PackFile]) -> list[PackFile]:
    """Return the documents. files: the others of the pack, which Croissant and RO-Crate describe by their hashes."""
    others, sheets = list(files), list[PackFile]()
    for write in DATASHEETS:
        sheets.append(write(facts, [*others, *sheets]))
    return sheets
