"""Uploaded KG files: stored until a researcher has mapped their relations, then imported."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.db import transaction

from kgharvest.accounts.projects import project_for
from kgharvest.contrib.knowledge_graphs.imports.kg_import import ImportedKG, prepared_kg
from kgharvest.contrib.knowledge_graphs.imports.mapping import Target
from kgharvest.contrib.knowledge_graphs.imports.staging import StagedKG
from kgharvest.contrib.knowledge_graphs.models import UploadedKG
from kgharvest.errors import DomainError
from kgharvest.models import LanguageModel, Project
from kgharvest.names import check_name

MOST_PER_PERSON = 5  # pending files; the oldest is deleted
LONGEST_NAME = 200  # bytes of the temporary file's name; file systems allow 255


def store_upload(
    system: str, file: Any, labels: Any, file_format: str, now: datetime, *, by, project: Project | None = None
) -> UploadedKG:
    """Validate and store a file. file, labels: objects with `name` and `read`; labels may be None.

    Raises ImportRefused, BadName, NotAllowed or ProjectNotNamed.
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


def staged_upload(upload: UploadedKG) -> AbstractContextManager[StagedKG]:
    """Yield the statements of the uploaded file. Raises ImportRefused."""
    return staged_content(upload.file_name, upload.content, upload.labels, upload.file_format)


@contextmanager
def staged_content(name: str, content: bytes, labels: bytes | None, file_format: str) -> Iterator[StagedKG]:
    """Yield the statements of a file in memory. name: file name in error messages. Raises ImportRefused."""
    with TemporaryDirectory() as file_folder, TemporaryDirectory() as labels_folder:
        path = Path(file_folder) / name.encode()[:LONGEST_NAME].decode(errors="ignore")
        path.write_bytes(content)
        labels_path = None
        if labels is not None:
            labels_path = Path(labels_folder) / "labels"
            labels_path.write_bytes(labels)
        with StagedKG(path, file_format, labels_path) as staged:
            yield staged


def import_upload(upload: UploadedKG, staged: StagedKG, targets: Mapping[str, Target], by) -> ImportedKG:
    """Import the file and delete it. Raises ImportedAlready if it has been deleted, or errors of `import_kg`."""
    with prepared_kg(staged, upload.system, targets, by, upload.project) as store, transaction.atomic():
        n_deleted, _ = UploadedKG.objects.filter(pk=upload.pk).delete()  # first, so that concurrent requests wait here
        if not n_deleted:
            raise DomainError("ImportedAlready", f"{upload.file_name} has been imported or deleted. See the harvests.")
        return store()


def delete_expired_uploads(now: datetime) -> None:
    """Delete expired uploads. Does not open a write transaction if there are none."""
    expired = UploadedKG.objects.expired(now)
    if expired.exists():
        expired.delete()
