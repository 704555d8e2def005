"""KG completion by a text-to-text model such as COMET (Bosselut et al. 2019): tails of heads, and scores of tuples."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kgharvest.bulk.file_reading import Line, read_json_objects, read_lines
from kgharvest.bulk.file_values import BadValue, read_entities
from kgharvest.bulk.file_writing import write_atomically
from kgharvest.engine.types import OnProgress, Reporter
from kgharvest.errors import BadEntry, DomainError, Faults, ImportRefused
from kgharvest.harvests.tuple_files import Cell, import_tuples
from kgharvest.models import HarvestJob, Project, Relation

if TYPE_CHECKING:
    from kgharvest.engine.language_models.encoder_decoder import Seq2SeqModel

COMET_TEMPLATE = "{head} {relation} [GEN]"
FIELD = re.compile(r"\{(head|relation)\}")
NO_TAIL = ("", "none")  # COMET writes "none" if it has no tail


def question_of(template: str, head: str, relation: str) -> str:
    """Return the input of the model. The relation is written as in ConceptNet: used_for becomes UsedFor."""
    names = {"head": head, "relation": "".join(part[:1].upper() + part[1:] for part in relation.split("_"))}
    return FIELD.sub(lambda field: names[field[1]], template)


def check_template(template: str) -> None:
    """Raise BadTemplate if the model would get the same input for every head."""
    if "{head}" not in template:
        raise DomainError("BadTemplate", f"The template {template!r:.80} lacks {{head}}. Add it.")


def heads_of_harvest(job: HarvestJob) -> list[str]:
    """Return the distinct first entities of a harvest, best first. Raises NothingToComplete."""
    heads = dict.fromkeys(
        surface[0] for surface in job.tuples.presentable().order_by("rank").values_list("surface", flat=True)
    )
    if not heads:
        raise DomainError("NothingToComplete", f"Harvest {job.pk} has no tuples. Use another harvest.")
    return list(heads)


def heads_of_file(path: Path) -> list[str]:
    """Return the distinct heads of a file with one head per line. Raises NoSuchFile or ImportRefused."""
    heads = dict.fromkeys(line.strip() for line in read_lines(path) if line.strip())
    if not heads:
        raise ImportRefused(path.name, [BadEntry("the file", "has no heads")])
    return list(heads)


def completed(
    model: "Seq2SeqModel",
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
            raise DomainError("NothingToComplete", f"{cell.language_model} wrote no tail of {cell.relation}.")
        return import_tuples(path, cell, "jsonl", project)


def read_pairs(path: Path) -> list[tuple[str, tuple[str, ...]]]:
    """Return (relation, entities) of a JSONL file with two entities per line. Raises NoSuchFile or ImportRefused."""
    pairs, faults = [], Faults()
    for line in read_json_objects(read_lines(path)):
        if isinstance(line, Line):
            try:
                if not isinstance(name := line.value.get("relation"), str):
                    raise BadValue('has no "relation"')
                pairs.append((name, read_entities(line.value.get("entities"), 2)))
            except BadValue as fault:
                faults.add(BadEntry(f"line {line.number}", str(fault)))
        else:
            faults.add(line)
    if not faults.n and not pairs:
        faults.add(BadEntry("the file", "has no tuples"))
    faults.refuse(path.name)
    return pairs


def scored(
    model: "Seq2SeqModel", pairs: Sequence[tuple[str, tuple[str, ...]]], template: str, on_progress: OnProgress
) -> Iterator[dict[str, Any]]:
    """Yield each pair with log P(tail | head, relation) in nats, as a row of a file of scores."""
    report = Reporter(on_progress, "tuples", len(pairs))
    done = 0
    for (name, head), group in groupby(sorted(pairs), key=lambda pair: (pair[0], pair[1][0])):
        tails = [entities[1] for _, entities in group]
        question = question_of(template, head, name.rpartition("/")[2])
        for tail, logprob in zip(tails, model.target_logprobs(question, tails), strict=True):
            yield {"relation": name, "entities": [head, tail], "score": logprob, "system": model.name}
        done += len(tails)
        report(done)
