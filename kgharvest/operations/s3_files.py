"""Files in a bucket of S3, or of a store that speaks its protocol, through django-storages."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from botocore import exceptions
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.core.files import File
from django.core.files.base import ContentFile
from s3transfer.exceptions import RetriesExceededError
from storages.backends.s3 import S3Storage

from kgharvest.operations.files import FilesUnavailable

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 10  # without a byte
MEMORY = 1 << 20  # bytes of a file that is read; a larger one goes through a temporary file
NO_ANSWER = (
    exceptions.ConnectionError,
    exceptions.HTTPClientError,
    exceptions.IncompleteReadError,
    RetriesExceededError,
)
MISSING = {"404", "NoSuchKey"}
LATER = {"SlowDown", "RequestTimeout", "RequestTimeTooSkewed", "ServiceUnavailable", "InternalError", "503", "500"}
CHECKS = "checks"  # folder of what `check` writes


class S3Files(S3Storage):
    """Objects without an ACL: private, unless the bucket says otherwise. Credentials come the ways of AWS's own tools.

    A file that is opened is fetched whole first, so that no download ends in the middle because the store does.
    """

    def __init__(self, **options):
        config = Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": 2},
            # Stores other than Amazon's refuse the trailing checksums that boto3 adds where it may.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        found_by_boto3 = {"access_key": None, "secret_key": None, "security_token": None}
        super().__init__(client_config=config, max_memory_size=MEMORY, **found_by_boto3, **options)

    @property
    def place(self) -> str:
        at = f" at {self.endpoint_url}" if self.endpoint_url else ""
        return f"s3://{self.bucket_name}/{self.location}{at}"

    def _open(self, name: str, mode: str = "rb") -> File:
        with self._failures_told():
            file = super()._open(name, mode)
            file.seek(0)  # fetches it
            return file

    def _save(self, name: str, content: File) -> str:
        with self._failures_told():
            return super()._save(name, content)

    def exists(self, name: str) -> bool:
        with self._failures_told():
            is_there = super().exists(name)
        if not is_there:
            self._check_bucket()
        return is_there

    def size(self, name: str) -> int:
        with self._failures_told():
            return super().size(name)

    def delete(self, name: str) -> None:
        with self._failures_told():
            super().delete(name)

    def listdir(self, name: str) -> tuple[list[str], list[str]]:
        with self._failures_told():
            return super().listdir(name)

    def check(self) -> None:
        """Write a small file, read it, list it and delete it. Raises FilesUnavailable."""
        name = f"{CHECKS}/{uuid4().hex}"
        self.save(name, ContentFile(b"kgharvest\n"))
        with self.open(name):
            pass
        self.listdir(CHECKS)
        self.delete(name)

    @contextmanager
    def _failures_told(self) -> Iterator[None]:
        """Raise FilesUnavailable, or FileNotFoundError for a file that is not in its bucket."""
        try:
            yield
        except FileNotFoundError:
            self._check_bucket()
            raise
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in MISSING:
                self._check_bucket()
                raise FileNotFoundError(code) from error
            raise self._unavailable(error, is_passing=code in LATER) from error
        except (BotoCoreError, RetriesExceededError) as error:
            raise self._unavailable(error, is_passing=isinstance(error, NO_ANSWER)) from error

    def _check_bucket(self) -> None:
        """Tell a missing bucket from a missing file: to both the store says 404, without a word."""
        try:
            self.connection.meta.client.head_bucket(Bucket=self.bucket_name)
        except (BotoCoreError, ClientError) as error:
            raise self._unavailable(error, is_passing=isinstance(error, NO_ANSWER)) from error

    def _unavailable(self, error: Exception, is_passing: bool) -> FilesUnavailable:
        advice = "check that it runs" if is_passing else "check KGHARVEST_FILES, the bucket and the credentials"
        reason = f"{self.place} fails ({str(error).splitlines()[0]}); {advice}"
        logger.warning("The store of files: %s", reason)
        return FilesUnavailable(reason, is_passing)
