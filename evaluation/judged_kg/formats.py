"""The formats of judged KGs, and how their files reach a folder, a file or a browser."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from evaluation.judged_kg.rows import Counted, JudgedKG, Kept
from evaluation.judged_kg.tables import File, as_hugging_face, as_pykeen
from kgharvest.bulk.file_writing import NotWritable, StreamedFile, check_writable, write_atomically


def _as_ntriples(kg: JudgedKG, rows: Counted) -> Iterator[File]:
    from evaluation.judged_kg.rdf import as_ntriples  # rdflib takes half a second to load

    return as_ntriples(kg, rows)


def _as_turtle(kg: JudgedKG, rows: Counted) -> Iterator[File]:
    from evaluation.judged_kg.rdf import as_turtle

    return as_turtle(kg, rows)


class Format(NamedTuple):
    """How a judged KG becomes files. is_folder: of several files, which browsers get as a zip archive."""

    label: str
    content_type: str
    suffix: str
    write: Callable[[JudgedKG, Counted], Iterator[File]]
    kept: Kept = Kept.ALL  # unless somebody says
    is_folder: bool = False


FORMATS = {
    "hf": Format("Hugging Face data set", "application/zip", "zip", as_hugging_face, is_folder=True),
    "pykeen": Format(
        "PyKEEN triples", "text/tab-separated-values; charset=utf-8", "pykeen.tsv", as_pykeen, Kept.ACCEPTED
    ),
    "nt": Format("N-Triples", "application/n-triples", "nt", _as_ntriples),
    "ttl": Format("Turtle", "text/turtle; charset=utf-8", "ttl", _as_turtle),
}


@dataclass
class Export:
    """A judged KG on its way into files. rows: count what has passed, when the files are written."""

    kg: JudgedKG
    file_format: str
    kept: Kept | None = None

    def __post_init__(self) -> None:
        self.format = FORMATS[self.file_format]
        self.kept = Kept(self.kept or self.format.kept)
        self.rows = Counted(self.kg.rows(self.kept))

    @property
    def file_name(self) -> str:
        suffix = f"{self.file_format}.zip" if self.format.is_folder else self.format.suffix
        return f"{self.kg.round.name}-{self.kept}.{suffix}"

    def files(self) -> Iterator[File]:
        return self.format.write(self.kg, self.rows)

    def download(self) -> Iterator[bytes]:
        """Yield the file, or the archive of the files, as it is made."""
        if self.format.is_folder:
            yield from _zipped(self.files())
        else:
            for _, pieces in self.files():
                yield from pieces

    def write_to(self, path: Path) -> None:
        """Write the file, or the folder with the files. Raises NotWritable."""
        if not self.format.is_folder:
            write_atomically(path, self.download())
            return
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise NotWritable(f"{path} is there already; name a new folder.")
        check_writable(path.parent / "new")
        for name, pieces in self.files():
            target = path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target, pieces)


def _zipped(files: Iterable[File]) -> Iterator[bytes]:
    stream = StreamedFile()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, pieces in files:
            with archive.open(name, "w", force_zip64=True) as member:
                for piece in pieces:
                    member.write(piece)
                    yield stream.take()
    yield stream.take()
