"""Files in an S3 bucket or an S3-compatible store, using django-storages."""

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
READ_TIMEOUT_S = 10  # maximum time without receiving data
MEMORY = 1 << 20  # number of bytes; larger files are read through a temporary file
NO_ANSWER = (
    exceptions.ConnectionError,
    exceptions.HTTPClientError,
    exceptions.IncompleteReadError,
    RetriesExceededError,
)
MISSING = {"404", "NoSuchKey"}
LATER = {"SlowDown", "RequestTimeout", "RequestTimeTooSkewed", "ServiceUnavailable", "InternalError", "503", "500"}
CHECKS = "checks"  # folder of the files written by `check`


class S3Files(S3Storage):
    """Files as objects in a bucket. They have no ACL, so the policy of the bucket decides who can read them.

    Credentials are found in the same way as by AWS tools. Opening a file fetches it completely, so that downloads
    cannot fail halfway.
    """

    def __init__(self, **options):
        config = Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": 2},
            # Stores other than Amazon's reject trailing checksums, which boto3 adds by default.
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
        with self._store_errors():
            file = super()._open(name, mode)
            file.seek(0)  # this fetches the content
            return file

    def _save(self, name: str, content: File) -> str:
        with self._store_errors():
            return super()._save(name, content)

    def exists(self, name: str) -> bool:
        with self._store_errors():
            exists = super().exists(name)
        if not exists:
            self._check_bucket()
        return exists

    def size(self, name: str) -> int:
        with self._store_errors():
            return super().size(name)

    def delete(self, name: str) -> None:
        with self._store_errors():
            super().delete(name)

    def listdir(self, name: str) -> tuple[list[str], list[str]]:
        with self._store_errors():
            return super().listdir(name)

    def check(self) -> None:
        """Write, read, list, and delete a small file. Raises FilesUnavailable."""
        name = f"{CHECKS}/{uuid4().hex}"
        self.save(name, ContentFile(b"kgharvest\n"))
        with self.open(name):
            pass
        self.listdir(CHECKS)
        self.delete(name)

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        """Convert errors in the block to FilesUnavailable, or to FileNotFoundError if the bucket lacks the file."""
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
        """Raise FilesUnavailable if the bucket is missing.

        A missing bucket has the same 404 response as a missing file.
        """
        try:
            self.connection.meta.client.head_bucket(Bucket=self.bucket_name)
        except (BotoCoreError, ClientError) as error:
            raise self._unavailable(error, is_passing=isinstance(error, NO_ANSWER)) from error

    def _unavailable(self, error: Exception, is_passing: bool) -> FilesUnavailable:
        advice = "check that it is running" if is_passing else "check KGHARVEST_FILES, the bucket, and the credentials"
        reason = f"{self.place} fails ({str(error).splitlines()[0]}); {advice}"
        logger.warning("File store error: %s", reason)
        return FilesUnavailable(reason, is_passing)
