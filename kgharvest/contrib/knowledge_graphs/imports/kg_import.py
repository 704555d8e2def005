"""Import of a knowledge graph (KG) in one transaction: each mapped relation becomes a finished harvest.

Uploaded files are stored until a researcher has mapped their relations.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from django.db import transaction
from django.utils import timezone
from django.utils.text import slugify

from kgharvest import code_version
from kgharvest.accounts.projects import project_for
from kgharvest.audit.tables import sha256
from kgharvest.bulk.file_values import entities_error
from kgharvest.contrib.knowledge_graphs.imports.mapping import BadMapping, Target
from kgharvest.contrib.knowledge_graphs.imports.statements import StagedKG
from kgharvest.contrib.knowledge_graphs.models import UploadedKG
from kgharvest.entities.tables import canonicalizer, with_canonical_entities
from kgharvest.errors import BadEntry, DomainError, Faults, ImportRefused
from kgharvest.events.recording import record
from kgharvest.harvests.language_models import name_language_model
from kgharvest.knowledge.tuple_files import ExternalSort
from kgharvest.knowledge.tuple_store import TupleRow, store_tuples
from kgharvest.models import HarvestJob, Job, LanguageModel, Launch, Project, Relation
from kgharvest.names import check_name
from kgharvest.relations.services import save_relation

SETTING = "imported"
MOST_JOBS = 1000  # maximum number of relations per import
MOST_PER_PERSON = 5  # maximum number of pending files; a further upload deletes the oldest file
LONGEST_NAME = 200  # maximum bytes in the name of a temporary file; file systems allow 255


class ImportedKG(NamedTuple):
    """Result of an import. n_left_out: number of statements of unmapped relations.

    n_repeated: number of duplicates of better-ranked statements.
    """

    launch: Launch
    jobs: Sequence[HarvestJob]
    n_tuples: int
    n_left_out: int
    n_repeated: int


@dataclass
class _Part:
    """A harvest to be created, with the relations of the file that are mapped to it."""

    targets: dict[str, Target] = field(default_factory=dict)
    n_rows: int = 0
    is_scored: bool = False

    @property
    def target(self) -> Target:
        return next(iter(self.targets.values()))


def import_kg(
    staged: StagedKG, name: str, targets: Mapping[str, Target], by=None, project: Project | None = None
) -> ImportedKG:
    """Store the mapped relations of a file as finished harvests in one launch. name: source system.

    Tuples are ranked by score, or in the order of the file if the relation has no scores. New relations are added to
    the set named after the system. Nothing is stored if an error is raised: ImportRefused with the invalid lines,
    BadMapping, BadName, NotAllowed, or ProjectNotNamed.
    """
    with prepared_kg(staged, name, targets, by, project) as store:
        return store()


@contextmanager
def prepared_kg(
    staged: StagedKG, name: str, targets: Mapping[str, Target], by=None, project: Project | None = None
) -> Iterator:
    """Check and sort the statements for `import_kg`, and yield a function that stores them in one transaction."""
    project = project_for(by, project)
    check_name(name, LanguageModel._meta.get_field("name").max_length, "system")
    parts = _parts(staged, targets)
    with ExternalSort() as rows:
        faults = Faults()
        for number, part in enumerate(parts):
            _sort(staged, part, rows, number, faults)
        faults.refuse(staged.source)
        yield lambda: _store(staged, name, parts, rows, by, project)


def _parts(staged: StagedKG, targets: Mapping[str, Target]) -> list[_Part]:
    """Return the planned harvests. Raises BadMapping."""
    file_names = {relation.name for relation in staged.relations()}
    if unknown := [name for name in targets if name not in file_names]:
        raise BadMapping(f"{staged.source} has no relation {unknown[0]!r:.80}. Use the names in the file.")
    if not targets:
        raise BadMapping(f"No relation of {staged.source} is mapped. Map at least one relation.")
    parts: dict[object, _Part] = {}
    for name, target in targets.items():
        part = parts.setdefault(target.relation.pk if target.relation else target.name, _Part())
        part.targets[name] = target
        if part.target.statement != target.statement:
            raise BadMapping(f"The new relation {target.name!r} has two different templates. Use one template.")
    if len(parts) > MOST_JOBS:
        raise BadMapping(f"{len(parts):,} relations are mapped. Map at most {MOST_JOBS:,} relations per import.")
    return list(parts.values())


def _sort(staged: StagedKG, part: _Part, rows: ExternalSort, number: int, faults: Faults) -> None:
    """Add the statements of one harvest to `rows`; set `part.n_rows` and `part.is_scored`."""
    n_scored, first_unscored = 0, 0

    def checked() -> Iterator[TupleRow]:
        nonlocal n_scored, first_unscored
        order = 0
        for name, target in part.targets.items():
            for statement in staged.statements(name):
                entities = target.entities_of(statement)
                if None in entities:
                    slot = target.slots[entities.index(None)]
                    reason = f"has no value for {slot!r:.60}, which the relation requires"
                elif not (reason := entities_error(entities, len(entities))) and "\n" in "".join(entities):
                    reason = "has an entity with a line break"
                if reason:
                    faults.add(BadEntry(f"line {statement.line}", reason))
                    continue
                order += 1
                if statement.score is None:
                    first_unscored = first_unscored or statement.line
                else:
                    n_scored += 1
                surface = tuple(entity.strip() for entity in entities)
                score = -float(order) if statement.score is None else statement.score
                yield TupleRow(tuple(entity.casefold() for entity in surface), surface, score, None)

    canonical = canonicalizer(part.target.relation) if part.target.relation else None
    part.n_rows = rows.add(with_canonical_entities(checked(), canonical), number)
    part.is_scored = n_scored > 0
    if n_scored and first_unscored:
        others = f"other statements of {next(iter(part.targets))!r:.60}"
        reason = f"has no score, but {others} have one; score all statements of a relation or none"
        faults.add(BadEntry(f"line {first_unscored}", reason))


@transaction.atomic
def _store(staged: StagedKG, name: str, parts: Sequence[_Part], rows: ExternalSort, by, project: Project) -> ImportedKG:
    now = timezone.now()
    language_model = name_language_model(name)
    launch = Launch.objects.create(project=project, created_by=by)
    jobs = []
    for number, part in enumerate(parts):
        slots = {relation: list(target.slots) for relation, target in part.targets.items()}
        identity = json.dumps([staged.digest, slots, part.target.statement, name])
        job = HarvestJob.objects.create(
            kind="import",
            project=project,
            status=Job.Status.SUCCEEDED,
            relation=_relation(part.target, name, by, project),
            language_model=language_model,
            setting=SETTING,
            launch=launch,
            origin=HarvestJob.Origin.IMPORTED,
            score_scale=HarvestJob.ScoreScale.OWN if part.is_scored else HarvestJob.ScoreScale.ORDER,
            summary={"source": staged.source, "rows": part.n_rows, "code_version": code_version()},
            n_tuples=rows.size_of(number),
            fingerprint=sha256(identity)[:16],
            created_by=by,
            started_at=now,
            finished_at=now,
        )
        part_rows = rows.rows_of(number)
        if not part.is_scored:  # lists of tuples are sorted by score, so scores are derived from the ranks
            part_rows = (row._replace(score=-float(rank)) for rank, row in enumerate(part_rows, start=1))
        store_tuples(job, part_rows)
        jobs.append(job)
    n_rows, n_tuples = sum(part.n_rows for part in parts), sum(job.n_tuples for job in jobs)
    record("harvests.imported", launch, by, project.pk, jobs, n_tuples=n_tuples, n_harvests=len(jobs))
    n_statements = sum(relation.n_statements for relation in staged.relations())
    return ImportedKG(launch, jobs, n_tuples, n_statements - n_rows, n_rows - n_tuples)


def _relation(target: Target, name: str, by, project: Project) -> Relation:
    """Return the target's relation. A new relation is created. Raises BadRelation, NotAllowed, or ImportRefused."""
    if target.relation:
        return target.relation
    set_name = slugify(name)[:100] or "imported"
    relation = Relation.objects.filter(relation_set__name=set_name, name=target.entry.name).first()
    if relation is None:
        return save_relation(target.entry, set_name, by=by, project=project)
    if relation.statement != target.statement or not Relation.objects.visible_to(by).filter(pk=relation.pk).exists():
        reason = f"already exists in the set {set_name} with a different statement"
        raise ImportRefused("mapping", [BadEntry(f"relation {target.entry.name!r:.80}", reason)])
    return relation


def store_upload(
    system: str, file: Any, labels: Any, file_format: str, now: datetime, *, by, project: Project | None = None
) -> UploadedKG:
    """Validate and store a file. file, labels: objects with `name` and `read`; labels can be None.

    Raises ImportRefused, BadName, NotAllowed, or ProjectNotNamed.
    """
    project = project_for(by, project)
    check_name(system, LanguageModel._meta.get_field("name").max_length, "system")
    upload = UploadedKG(
        project=project,
        uploaded_by=by,
        uploaded_at=now,
        system=system,
        file_name=(Path(file.name).name or "kg")[:255],
        file_format=file_format,
        content=file.read(),
        labels=labels.read() if labels else None,
    )
    with staged_upload(upload) as staged:
        upload.file_format = staged.file_format
    with transaction.atomic():
        UploadedKG.objects.expired(now).delete()
        pending = UploadedKG.objects.filter(uploaded_by=by).order_by("-pk").values_list("pk", flat=True)
        UploadedKG.objects.filter(pk__in=list(pending[MOST_PER_PERSON - 1 :])).delete()
        upload.save()
    return upload


@contextmanager
def staged_upload(upload: UploadedKG) -> Iterator[StagedKG]:
    """Yield the statements of an uploaded file. The upload does not have to be saved yet. Raises ImportRefused."""
    with TemporaryDirectory() as file_folder, TemporaryDirectory() as labels_folder:
        path = Path(file_folder) / upload.file_name.encode()[:LONGEST_NAME].decode(errors="ignore")
        path.write_bytes(upload.content)
        labels = None
        if upload.labels is not None:
            labels = Path(labels_folder) / "labels"
            labels.write_bytes(upload.labels)
        with StagedKG(path, upload.file_format, labels) as staged:
            yield staged


def import_upload(upload: UploadedKG, staged: StagedKG, targets: Mapping[str, Target], by) -> ImportedKG:
    """Import the file and delete it. Raises ImportedAlready if it has been deleted, and the errors of `import_kg`."""
    with prepared_kg(staged, upload.system, targets, by, upload.project) as store, transaction.atomic():
        # Delete the upload first, so that concurrent requests wait here.
        n_deleted, _ = UploadedKG.objects.filter(pk=upload.pk).delete()
        if not n_deleted:
            raise DomainError(
                "ImportedAlready", f"{upload.file_name} was already imported or deleted. Check the harvests."
            )
        return store()


def delete_expired_uploads(now: datetime) -> None:
    """Delete expired uploads. If there are none, no write transaction is opened."""
    expired = UploadedKG.objects.expired(now)
    if expired.exists():
        expired.delete()
