"""Import of a tuple file as a finished harvest."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.db import transaction
from django.utils import timezone

from kgharvest import code_version
from kgharvest.accounts.projects import project_for
from kgharvest.bulk.file_reading import read_chunks, read_lines
from kgharvest.entities.tables import canonicalizer, with_canonical_entities
from kgharvest.errors import BadEntry, Faults, ImportRefused
from kgharvest.knowledge.tuple_files import IMPORT_FORMATS, ExternalSort, Format, guess_format, read_tuples
from kgharvest.knowledge.tuple_store import TupleRow, store_tuples
from kgharvest.models import HarvestJob, Job, LanguageModel, Project, Relation
from kgharvest.names import check_name


@dataclass(frozen=True)
class Cell:
    """Relation, LM and setting of a harvest. Raises BadName for an invalid setting."""

    relation: Relation
    language_model: LanguageModel
    setting: str

    def __post_init__(self) -> None:
        check_name(self.setting, HarvestJob._meta.get_field("setting").max_length, "setting")


def import_tuples(
    path: Path, cell: Cell, file_format: str = "auto", by=None, project: Project | None = None
) -> HarvestJob:
    """Store the tuples of a file as a finished job, ranked by score. Of equal tuples, the better one is stored.

    file_format: key of IMPORT_FORMATS, or "auto". project: required if `by` may work in several projects. Raises
    ImportRefused with the invalid rows, NotAllowed or ProjectNotNamed, and then stores nothing.
    """
    with prepared_import(path, cell, file_format, by, project) as store:
        return store()


@contextmanager
def prepared_import(
    path: Path, cell: Cell, file_format: str = "auto", by=None, project: Project | None = None
) -> Iterator[Callable[[], HarvestJob]]:
    """Read and sort a file as `import_tuples` does. Yield a function that stores it in one transaction."""
    project = project_for(by, project)
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    identity = json.dumps([sha256, cell.relation.path, str(cell.language_model), cell.setting])
    tuple_format = IMPORT_FORMATS[guess_format(read_chunks(path)) if file_format == "auto" else file_format]
    with ExternalSort() as rows:
        valid = _valid_rows(path, cell.relation, tuple_format)
        n_rows = rows.add(with_canonical_entities(valid, canonicalizer(cell.relation)))
        if not n_rows:
            raise ImportRefused(path.name, [BadEntry("file", "has no tuples")])
        now = timezone.now()
        job = HarvestJob(
            kind="import",
            project=project,
            status=Job.Status.SUCCEEDED,
            relation=cell.relation,
            language_model=cell.language_model,
            setting=cell.setting,
            origin=HarvestJob.Origin.IMPORTED,
            score_scale=tuple_format.score_scale,
            summary={"source": path.name, "rows": n_rows, "code_version": code_version()},
            n_tuples=rows.size_of(),
            fingerprint=hashlib.sha256(identity.encode()).hexdigest()[:16],
            created_by=by,
            started_at=now,
            finished_at=now,
        )
        yield partial(_store_import, job, rows.rows_of())


def _valid_rows(path: Path, relation: Relation, tuple_format: Format) -> Iterator[TupleRow]:
    """Yield the valid rows of a file. Raises ImportRefused at its end if any row is invalid."""
    lines = read_lines(path) if tuple_format.is_by_line else read_chunks(path)
    faults = Faults()
    for row in read_tuples(lines, relation, tuple_format):
        if isinstance(row, BadEntry):
            faults.add(row)
        else:
            yield row
    faults.refuse(path.name)


@transaction.atomic
def _store_import(job: HarvestJob, rows: Iterable[TupleRow]) -> HarvestJob:
    job.save()
    store_tuples(job, rows)
    return job
