"""The store that SPARQL queries of a round ask: made of N-Triples, kept on disk, made anew when verdicts change."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from django.conf import settings

from annotation.models import Draw
from evaluation.judged_kg.formats import Export
from evaluation.judged_kg.rows import COUNTS, JudgedKG
from kgharvest import code_version
from kgharvest.errors import DomainError
from kgharvest.models import HarvestedTuple
from kgharvest.operations.child_processes import Output, run_limited

PROCESS = "evaluation.judged_kg.sparql_process"
MOST_TUPLES_ON_PAGES = 20_000  # of a round whose store a page may make while somebody waits
LONGEST_LOAD_S = 3600
ROWS_AT_ONCE = 20_000


class StoreTooLarge(DomainError):
    """A store that takes too long to make while somebody waits for a page."""


class StoreNotMade(DomainError):
    """A store that could not be written."""


def store_of(kg: JudgedKG, most_tuples: int | None = None) -> Path:
    """Return the folder of the store, made if it is not there or verdicts have changed since.

    most_tuples: how many its harvests may have where it must be made. Raises StoreTooLarge or StoreNotMade.
    """
    rounds = settings.DATA_DIR / "sparql" / str(kg.round.pk)
    folder = rounds / state_of(kg)
    if folder.is_dir():
        return folder
    n_tuples = sum(source.job.n_tuples for source in kg.sources if source.job)
    if most_tuples is not None and n_tuples > most_tuples:
        raise StoreTooLarge(
            f"The harvests of {kg.round.name} have {n_tuples:,} tuples, too many to prepare here; run the command "
            f'sparql --round {kg.round.path} "ASK {{}}" on the server once, then ask here again.'
        )
    rounds.mkdir(parents=True, exist_ok=True)
    with _locked(rounds / "lock"):
        if not folder.is_dir():  # it may have been made while this waited
            _make(kg, folder)
    return folder


def state_of(kg: JudgedKG) -> str:
    """Return what differs whenever the store would: a digest of verdicts and labels, of which tuples are hidden or
    sensitive, and of what round, relations, LMs and settings are called.
    """
    digest = hashlib.sha256(code_version().encode())
    columns = ("pk", "task__verdict", *COUNTS)
    draws = Draw.objects.filter(stratum__round=kg.round).order_by("pk").values_list(*columns)
    for draw in draws.iterator(ROWS_AT_ONCE):
        digest.update(repr(draw).encode())
    tuples = HarvestedTuple.objects.filter(job__in=[source.job.pk for source in kg.sources if source.job])
    curated = tuples.exclude(knowledge_tuple__curation=None).order_by("pk").values_list
    digest.update(
        repr(list(curated("pk", "knowledge_tuple__curation", "knowledge_tuple__corrected_entities"))).encode()
    )
    sensitive = tuples.filter(knowledge_tuple__is_sensitive=True).order_by("pk").values_list("pk", flat=True)
    for pk in sensitive.iterator(ROWS_AT_ONCE):
        digest.update(f"{pk} ".encode())
    about = (
        (kg.round.path, kg.round.status, kg.round.opened_at, kg.round.closed_at, kg.round.include_sensitive),
        [(source.relation.path, source.relation.statement, source.model, source.setting) for source in kg.sources],
    )
    digest.update(repr(about).encode())
    return digest.hexdigest()[:32]


def _make(kg: JudgedKG, folder: Path) -> None:
    """Fill a store beside its place and move it there; stores of former verdicts go."""
    draft = Path(mkdtemp(prefix="draft-", dir=folder.parent))
    try:
        made = in_process("load", draft, Export(kg, "nt").download(), LONGEST_LOAD_S)
        if made.status:
            raise StoreNotMade(f"The store for queries could not be made in {draft.parent}; look for room on the disk.")
        for former in folder.parent.iterdir():
            if former.is_dir() and former != draft:
                shutil.rmtree(former, ignore_errors=True)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def in_process(task: str, folder: Path, sent: bytes | Iterator[bytes], seconds: float) -> Output:
    command = [sys.executable, "-m", PROCESS, task, str(folder)]
    return run_limited(command, sent, seconds, settings.BASE_DIR)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process after the other in. The lock ends with the process that holds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
