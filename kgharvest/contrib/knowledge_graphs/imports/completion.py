"""KG completion by a text-to-text model such as COMET (Bosselut et al. 2019): tails of heads, and scores of tuples."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kgharvest.bulk.file_reading import read_lines
from kgharvest.bulk.file_values import BadValue, read_entities
from kgharvest.bulk.file_writing import write_atomically
from kgharvest.contrib.knowledge_graphs.imports.conceptnet import OTHER_NAMES
from kgharvest.contrib.knowledge_graphs.imports.statements import Statement, read_jsonl
from kgharvest.engine.types import OnProgress, Reporter
from kgharvest.errors import BadEntry, DomainError, Faults
from kgharvest.harvests.tuple_files import Cell, import_tuples
from kgharvest.models import HarvestJob, Project, Relation

if TYPE_CHECKING:
    from kgharvest.engine.language_models.encoder_decoder import Seq2SeqModel

COMET_TEMPLATE = "{head} {relation} [GEN]"
CONCEPTNET_NAMES = {name: conceptnet_name for conceptnet_name, name in OTHER_NAMES.items()}
FIELD = re.compile(r"\{(head|relation)\}")
QUESTION = attrgetter("relation", "head")
NO_TAIL = ("", "none")  # COMET writes "none" if it has no tail


def question_of(template: str, head: str, relation: str) -> str:
    """Return the input of the model. The relation has ConceptNet's name: used_for is UsedFor, and kind_of is IsA.

    Raises BadTemplate if the input would be the same for every head.
    """
    if "{head}" not in template:
        raise DomainError("BadTemplate", f"The template {template!r:.80} lacks {{head}}. Add it.")
    camel_case = "".join(part[:1].upper() + part[1:] for part in relation.split("_"))
    names = {"head": head, "relation": CONCEPTNET_NAMES.get(relation, camel_case)}
    return FIELD.sub(lambda field: names[field[1]], template)


def heads_of(job: HarvestJob) -> list[str]:
    """Return the distinct first entities of a harvest, best first."""
    surfaces = job.tuples.presentable().order_by("rank").values_list("surface", flat=True)
    return list(dict.fromkeys(surface[0] for surface in surfaces))


def completed(
    model: Seq2SeqModel,
    relation: Relation,
    heads: Sequence[str],
    n_tails: int,
    template: str,
    on_progress: OnProgress,
) -> Iterator[dict[str, Any]]:
    """Yield the `n_tails` best tails of a beam search for each head, with log P(tail | head, relation) in nats."""
    report = Reporter(on_progress, relation.name, len(heads))
    for done, head in enumerate(heads):
        for tail, logprob in model.beam_with_logprobs(question_of(template, head, relation.name), n_tails):
            try:
                entities = read_entities([head, tail], 2)
            except BadValue:  # an empty output, or one that is not an entity
                continue
            if entities[1].casefold() not in NO_TAIL:
                yield {"relation": relation.name, "entities": entities, "score": logprob}
        report(done + 1)


def store_completions(rows: Iterable[Mapping[str, Any]], cell: Cell, project: Project | None) -> HarvestJob:
    """Store the tuples as a finished harvest, ranked by score. Raises NothingToComplete if there are none."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "completions.jsonl"
        write_atomically(path, (json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        if not path.stat().st_size:
            reason = f"{cell.language_model} wrote no tail for {cell.relation}. Check the model and --template."
            raise DomainError("NothingToComplete", reason)
        return import_tuples(path, cell, "jsonl", project)


def read_pairs(path: Path) -> list[Statement]:
    """Return the tuples of a JSONL file. Raises NoSuchFile or ImportRefused.

    The file needs at least one tuple, and each tuple two entities.
    """
    pairs, faults = [], Faults()
    for row in read_jsonl(read_lines(path), lambda name, default: default):
        if isinstance(row, Statement) and not row.others:
            pairs.append(row)
        else:
            faults.add(row if isinstance(row, BadEntry) else BadEntry(f"line {row.line}", "has more than two entities"))
    if not pairs and not faults.n:
        faults.add(BadEntry("file", "has no tuples; add JSON lines with relation and two entities"))
    faults.refuse(path.name)
    return pairs


def scored(
    model: Seq2SeqModel, pairs: Iterable[Statement], template: str, system: str, on_progress: OnProgress
) -> Iterator[dict[str, Any]]:
    """Yield each pair with log P(tail | head, relation) in nats, as a row of a file of scores."""
    groups = [(key, [*group]) for key, group in groupby(sorted(pairs, key=QUESTION), QUESTION)]
    report = Reporter(on_progress, "heads", len(groups))
    for done, ((name, head), group) in enumerate(groups):
        question, tails = question_of(template, head, name.rpartition("/")[2]), [pair.tail for pair in group]
        for tail, logprob in zip(tails, model.target_logprobs(question, tails), strict=True):
            yield {"relation": name, "entities": [head, tail], "score": logprob, "system": system}
        report(done + 1)
