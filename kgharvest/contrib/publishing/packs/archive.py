"""A pack on disk: a folder or a ZIP file, written with the same bytes every time, and read with care.

What is read may come from anybody: nothing is unpacked, and names, numbers of files and sizes are bounded.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from evaluation.paper.files import PackFile
from evaluation.paper.row_files import BadPack
from kgharvest.bulk.file_writing import write_atomically
from kgharvest.errors import DomainError

SUMS = "SHA256SUMS"
PIECE = 1 << 20  # bytes that are copied at a time
MOST_FILES = 5000
LARGEST_PACK = 2 << 30  # bytes of all its files
LARGEST_PACK_GB = LARGEST_PACK >> 30
THE_SAME_TIME = (1980, 1, 1, 0, 0, 0)  # the first that ZIP can tell
READABLE = 0o100644 << 16


def sums_of(files: Iterable[PackFile]) -> PackFile:
    """Return the list of checksums, which `sha256sum -c` reads."""
    lines = "".join(f"{file.sha256}  {file.path}\n" for file in sorted(files, key=lambda file: file.path))
    return PackFile(SUMS, lines.encode(), "text/plain", "SHA-256 of every other file.")


# -- writing -----------------------------------------------------------------------------------------------------------


@contextmanager
def zipped(files: Iterable[PackFile], folder: Path) -> Iterator[IO[bytes]]:
    """Give the ZIP file of a pack, at its begin: a file without a name on the disk of `folder`, gone afterwards.

    Raises NotWritable.
    """
    with ExitStack() as stack:
        try:
            zip_file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            _write_zip(files, zip_file)
        except OSError as error:
            raise DomainError(
                "NotWritable", f"No file can be written in {folder} ({error.strerror}); make room there."
            ) from error
        zip_file.seek(0)
        yield zip_file


def _write_zip(files: Iterable[PackFile], zip_file: IO[bytes]) -> None:
    with zipfile.ZipFile(zip_file, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(files, key=lambda file: file.path):
            entry = zipfile.ZipInfo(file.path, THE_SAME_TIME)
            entry.create_system, entry.external_attr = 3, READABLE  # as on Unix, wherever it is made
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.content)


def write_pack(files: Iterable[PackFile], output: Path) -> None:
    """Write a ZIP file if `output` ends in .zip, else a folder, which must be new or empty. Raises NotWritable."""
    if output.suffix.lower() == ".zip":
        with zipped(files, output.parent) as zip_file:
            write_atomically(output, iter(lambda: zip_file.read(PIECE), b""))
    else:
        _write_folder(files, output)


def check_output(output: Path) -> None:
    """Raise NotWritable before long work is done for a pack that could not be written."""
    if output.suffix.lower() == ".zip":
        return
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise DomainError(
            "NotWritable", f"{output} is there already; name a new or an empty folder, or a file that ends in .zip."
        )
    if not os.access(output.parent, os.W_OK):
        raise DomainError(
            "NotWritable", f"{output} cannot be written; check that the folder {output.parent} exists and is yours."
        )


def _write_folder(files: Iterable[PackFile], output: Path) -> None:
    """Write the whole folder beside its place, then put it there."""
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
        raise DomainError(
            "NotWritable", f"{output} cannot be written ({error.strerror}); make room or name another."
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


# -- reading -----------------------------------------------------------------------------------------------------------


def read_pack(path: Path) -> dict[str, bytes]:
    """Return the content of each file of a pack by its path. Raises BadPack."""
    if path.is_dir():
        return dict(_read_folder(path))
    try:
        with zipfile.ZipFile(path) as archive:
            return dict(_read_zip(archive))
    except FileNotFoundError:
        raise BadPack(f"{path} is not there; name the folder or the ZIP file of a pack.") from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise BadPack(f"{path} cannot be read as a ZIP file ({error}); get the pack again.") from error


def _read_zip(archive: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    names = [_checked(entry.filename) for entry in entries]
    _check_number(len(names))
    if len(set(names)) < len(names):
        raise BadPack("Two files of this pack have the same name; get the pack again.")
    left = LARGEST_PACK
    for name, entry in zip(names, entries, strict=True):
        with archive.open(entry) as file:
            content = file.read(left + 1)  # what the entry says of its size may be wrong
        left -= len(content)
        _check_left(left)
        yield name, content


def _read_folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    left, n_files = LARGEST_PACK, 0
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent) / name
            if path.is_symlink() or not path.is_file():
                raise BadPack(f"{path} is a link or no file; a pack has files only.")
            n_files += 1
            _check_number(n_files)
            left -= path.stat().st_size
            _check_left(left)
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def _checked(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or path.as_posix() != name:
        raise BadPack(f"{name!r:.100} is no name of a file in a pack; get the pack again.")
    return name


def _check_number(n_files: int) -> None:
    if n_files > MOST_FILES:
        raise BadPack(f"This pack has more than {MOST_FILES:,} files; no pack has so many.")


def _check_left(left: int) -> None:
    if left < 0:
        raise BadPack(f"The files of this pack have more than {LARGEST_PACK_GB} GB; no pack is so large.")


def checksum_differences(contents: Mapping[str, bytes]) -> Iterator[str]:
    """Yield what is wrong with the files by SHA256SUMS: missing, extra and altered ones, a sentence each."""
    if SUMS not in contents:
        yield f"{SUMS}: missing"
        return
    recorded: dict[str, str] = {}
    for number, line in enumerate(contents[SUMS].decode("utf-8", "replace").splitlines(), start=1):
        digest, space, name = line.partition("  ")
        if not space:
            yield f"{SUMS}, line {number}: is no checksum and name"
        recorded[name] = digest
    for name in sorted(recorded.keys() | contents.keys() - {SUMS}):
        if name not in contents:
            yield f"{name}: missing"
        elif name not in recorded:
            yield f"{name}: not in {SUMS}"
        elif PackFile(name, contents[name], "", "").sha256 != recorded[name]:
            yield f"{name}: altered, its checksum is another one"
