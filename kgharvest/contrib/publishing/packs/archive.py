"""Replication packages on disk: reproducible ZIP files or folders, and safe reading.

Packages to read are untrusted: nothing is extracted, and file names, counts, and sizes are checked. Files are read one
at a time.
"""

import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import file_digest, sha256
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from evaluation.evidence.tables import RowColumn
from kgharvest.bulk.file_writing import write_atomically
from kgharvest.errors import DomainError

SUMS = "SHA256SUMS"
PIECE = 1 << 20  # number of bytes that are copied at a time
MOST_FILES = 5000
LARGEST_PACK = 2 << 30  # maximum total bytes of all files
LARGEST_PACK_GB = LARGEST_PACK >> 30
THE_SAME_TIME = (1980, 1, 1, 0, 0, 0)  # earliest timestamp in ZIP files
READABLE = 0o100644 << 16


class BadPack(DomainError):
    """The package cannot be read, or no report can be computed from its rows."""


class PackFile(NamedTuple):
    """A file of a package. path: relative path with forward slashes. columns: columns of a Parquet or JSONL file."""

    path: str
    content: bytes
    media_type: str
    description: str
    columns: tuple[RowColumn, ...] = ()

    @property
    def sha256(self) -> str:
        return sha256(self.content).hexdigest()


def sums_of(files: Iterable[PackFile]) -> PackFile:
    """Return the checksum file for `sha256sum -c`."""
    lines = "".join(f"{file.sha256}  {file.path}\n" for file in sorted(files, key=lambda file: file.path))
    return PackFile(SUMS, lines.encode(), "text/plain", "SHA-256 of every other file.")


# Writing


@contextmanager
def zipped(files: Iterable[PackFile], folder: Path) -> Iterator[IO[bytes]]:
    """Yield a package's ZIP file, opened for reading. It is an unnamed temporary file on the disk of `folder`.

    Raises NotWritable.
    """
    with ExitStack() as stack:
        try:
            zip_file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            with zipfile.ZipFile(zip_file, "w", zipfile.ZIP_DEFLATED) as archive:
                for file in sorted(files, key=lambda file: file.path):
                    entry = zipfile.ZipInfo(file.path, THE_SAME_TIME)
                    # 3 means Unix. It is set explicitly, so that it does not depend on the system that writes the file.
                    entry.create_system, entry.external_attr = 3, READABLE
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    archive.writestr(entry, file.content)
        except OSError as error:
            raise DomainError(
                "NotWritable", f"Cannot write to {folder} ({error.strerror}). Free disk space there."
            ) from error
        zip_file.seek(0)
        yield zip_file


def write_pack(files: Iterable[PackFile], output: Path) -> None:
    """Write a ZIP file if `output` ends in .zip, otherwise a new or empty folder. Raises NotWritable."""
    if output.suffix.lower() == ".zip":
        with zipped(files, output.parent) as zip_file:
            write_atomically(output, iter(lambda: zip_file.read(PIECE), b""))
        return
    check_output(output)
    draft = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        for file in files:
            path = draft / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
        draft.chmod(0o755)
        draft.replace(output)
    except OSError as error:
        message = f"Cannot write {output} ({error.strerror}). Free disk space or choose another folder."
        raise DomainError("NotWritable", message) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_output(output: Path) -> None:
    """Raise NotWritable if no package can be written to `output`. Called before a package is computed."""
    if output.suffix.lower() == ".zip":
        return
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        message = f"{output} already exists. Choose a new or empty folder, or a file name that ends in .zip."
        raise DomainError("NotWritable", message)
    if not os.access(output.parent, os.W_OK):
        message = f"Cannot write {output}. Check that the folder {output.parent} exists and is writable."
        raise DomainError("NotWritable", message)


# Reading


class Pack(Mapping[str, bytes]):
    """Files of a package, read on access. sizes: number of bytes by path.

    Raises BadPack, also on access.
    """

    def __init__(self, path: Path):
        self.path = path
        with self._reading():
            self.sizes = dict(_files_of_folder(path) if path.is_dir() else _files_of_zip(path))

    def __getitem__(self, name: str) -> bytes:
        with self._opened(name) as file:
            return file.read()

    def __contains__(self, name: object) -> bool:
        return name in self.sizes

    def __iter__(self) -> Iterator[str]:
        return iter(self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def sha256(self, name: str) -> str:
        with self._opened(name) as file:
            return file_digest(file, "sha256").hexdigest()

    @contextmanager
    def _opened(self, name: str) -> Iterator[Any]:
        if name not in self.sizes:
            raise KeyError(name)
        with self._reading(), ExitStack() as stack:
            if self.path.is_dir():
                yield stack.enter_context((self.path / name).open("rb"))
            else:
                yield stack.enter_context(stack.enter_context(zipfile.ZipFile(self.path)).open(name))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise BadPack(f"{self.path} not found. Specify the folder or ZIP file of a package.") from None
        except (
            zipfile.BadZipFile,
            zlib.error,
            NotImplementedError,
            RuntimeError,
            EOFError,
            OSError,
            ValueError,
        ) as error:
            raise BadPack(f"Cannot read {self.path} as a ZIP file ({error}). Download the package again.") from error


def _files_of_zip(path: Path) -> Iterator[tuple[str, int]]:
    with zipfile.ZipFile(path) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    names = [entry.filename for entry in entries]
    for name in names:
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or "\\" in name or "\0" in name or parts.as_posix() != name:
            raise BadPack(f"Invalid file name in the package: {name!r:.100}. Download the package again.")
    if len(set(names)) < len(names):
        raise BadPack("Duplicate file names in the package. Download the package again.")
    # A file is read up to its size in the directory. If it is longer, its checksum is wrong.
    _check_limits(len(names), sum(entry.file_size for entry in entries))
    yield from ((entry.filename, entry.file_size) for entry in entries)


def _files_of_folder(folder: Path) -> Iterator[tuple[str, int]]:
    n_files = n_bytes = 0
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent) / name
            if path.is_symlink() or not path.is_file():
                raise BadPack(f"{path} is not a regular file. A package contains only regular files.")
            n_files += 1
            n_bytes += path.stat().st_size
            _check_limits(n_files, n_bytes)
            yield path.relative_to(folder).as_posix(), path.stat().st_size


def _check_limits(n_files: int, n_bytes: int) -> None:
    if n_files > MOST_FILES:
        raise BadPack(f"The package has more than {MOST_FILES:,} files.")
    if n_bytes > LARGEST_PACK:
        raise BadPack(f"The files of the package exceed {LARGEST_PACK_GB} GB.")


def checksum_differences(contents: Pack) -> Iterator[str]:
    """Yield a sentence for each difference from SHA256SUMS: missing, additional, and altered files."""
    if SUMS not in contents:
        yield f"{SUMS}: missing"
        return
    recorded: dict[str, str] = {}
    for number, line in enumerate(contents[SUMS].decode("utf-8", "replace").splitlines(), start=1):
        digest, space, name = line.partition("  ")
        if not space:
            yield f"{SUMS}, line {number}: not a checksum and file name"
        recorded[name] = digest
    for name in sorted(recorded.keys() | contents.keys() - {SUMS}):
        if name not in contents:
            yield f"{name}: missing"
        elif name not in recorded:
            yield f"{name}: not in {SUMS}"
        elif contents.sha256(name) != recorded[name]:
            yield f"{name}: altered; the checksum differs"
