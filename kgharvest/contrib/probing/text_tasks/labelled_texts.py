"""Texts with labels from files, and their samples. Does not import torch."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from kgharvest.bulk.file_reading import Line, read_json_objects, read_lines
from kgharvest.contrib.probing.probes.facts import PARTS
from kgharvest.contrib.probing.text_tasks.options import check_triggers
from kgharvest.contrib.probing.text_tasks.text_template import TextTemplate
from kgharvest.errors import BadEntry, DomainError, Faults, ImportRefused

# Default templates by file columns (Shin et al. 2020, Table 3).
TEMPLATES = {
    ("sentence",): "{sentence} [T] [T] [T] [P] .",
    ("premise", "hypothesis"): "{premise} [P] [T] [T] [T] {hypothesis}",
    ("sentence_A", "sentence_B"): "{sentence_A} [P] [T] [T] [T] {sentence_B}",
}
LABELS = ("label", "entailment_judgment", "entailment_label")  # column names, the last two in the files of SICK


class LabelledRow(NamedTuple):
    """A line of a file. texts: texts by column."""

    number: int
    texts: Mapping[str, str]
    label: str


@dataclass(frozen=True)
class TextSets:
    """Rows by part, and the sorted labels. Every label occurs in train."""

    parts: Mapping[str, Sequence[LabelledRow]]
    labels: tuple[str, ...]


def labelled_texts(
    source: Mapping[str, Path] | str, options: Mapping[str, Any]
) -> tuple[TextSets, TextTemplate, TextTemplate]:
    """Return the texts, the template, and the manual template. Raises DomainError, BadPrompt, or ImportRefused.

    source: files by part, or the content of one file of JSON lines with "part". options: those of text tasks.
    """
    if isinstance(source, str):
        lines: dict[str, Any] = lines_by_part(source)
        names = dict.fromkeys(PARTS, "the file")
    else:
        lines = {part: list(_lines(path)) for part, path in source.items()}
        names = {part: path.name for part, path in source.items()}
    template = TextTemplate.parse(options["template"] or default_template(lines["train"], names["train"]))
    manual = TextTemplate.parse(options["manual"]) if options["manual"] else template.without_triggers()
    columns = list(dict.fromkeys([*template.fields, *manual.fields]))
    parts = {part: labelled_rows(lines[part], names[part], columns) for part in PARTS}
    texts = text_sets(parts, names, options["only_labels"])
    texts = balanced(texts, options["seed"]) if options["balance"] else texts
    check_triggers(options, (template.n_triggers and options["grid_triggers"]) or [template.n_triggers])
    _check_labels(texts, options)
    return texts, template, manual


def _check_labels(texts: TextSets, options: Mapping[str, Any]) -> None:
    """Raise NotClassified for label words or sizes of subsets that do not fit the texts."""
    words, sizes = options["label_words"], options["train_sizes"]
    labels, n_train = texts.labels, len(texts.parts["train"])
    reason = ""
    if unknown := set(words) - set(labels):
        reason = f"Unknown label {min(unknown)!r}. The labels of the training texts are {', '.join(labels)}."
    elif words and (missing := [label for label in labels if not words.get(label)]):
        reason = f"The label {missing[0]!r} has no words. Specify words for all labels or for none."
    elif sizes and not len(labels) <= min(sizes) <= max(sizes) <= n_train:
        reason = f"Subsets have {len(labels)} (one text per label) to {n_train:,} (all) training texts."
    if reason:
        raise DomainError("NotClassified", reason)


# -- Files: JSON lines, or tab-separated columns with a header ---------------------------------------------------------


def read_labelled(path: Path, columns: Sequence[str]) -> list[LabelledRow]:
    """Return the rows with the texts in `columns`. Raises NoSuchFile, or ImportRefused with all bad lines."""
    return labelled_rows(_lines(path), path.name, columns)


def labelled_rows(lines: Iterable[Line | BadEntry], source: str, columns: Sequence[str]) -> list[LabelledRow]:
    """Return the rows of lines. Raises ImportRefused with all bad lines. source: name of the file."""
    rows, faults = [], Faults()
    for line in lines:
        fault = line if isinstance(line, BadEntry) else _fault(line, columns)
        if fault:
            faults.add(fault)
        else:
            texts = {column: line.value[column] for column in columns}
            rows.append(LabelledRow(line.number, texts, str(label_of(line.value)).strip()))
    faults.refuse(source)
    return rows


def _lines(path: Path) -> Iterator[Line | BadEntry]:
    """Yield lines of a .tsv file or, for any other suffix, of a JSON lines file."""
    lines = read_lines(path)
    if path.suffix.lower() != ".tsv":
        yield from read_json_objects(lines)
        return
    rows = (line.rstrip("\r\n").split("\t") for line in lines)
    header = next(rows, [])
    for number, row in enumerate(rows, start=2):
        if len(row) == len(header):
            yield Line(number, dict(zip(header, row, strict=True)))
        elif row != [""]:
            yield BadEntry(f"line {number}", f"has {len(row)} columns; the header has {len(header)}")


def label_of(row: Mapping[str, Any]) -> Any:
    """Return the value of the first label column of a line, or None."""
    return next((row[column] for column in LABELS if column in row), None)


def _fault(line: Line, columns: Sequence[str]) -> BadEntry | None:
    location = f"line {line.number}"
    for column in columns:
        if column not in line.value:
            return BadEntry(location, f"has no {column!r}")
        if not isinstance(line.value[column], str) or not line.value[column].strip():
            return BadEntry(location, f"has no text in {column!r}")
    label = label_of(line.value)
    if not isinstance(label, str | int) or not str(label).strip():
        return BadEntry(location, f"has no {LABELS[0]!r} that is a text or a whole number")
    return None


# -- Inputs ------------------------------------------------------------------------------------------------------------


def lines_by_part(content: str) -> dict[str, list[Line | BadEntry]]:
    """Return the JSON lines by their "part". Lines without a valid part belong to train, as errors."""
    parts: dict[str, list[Line | BadEntry]] = {part: [] for part in PARTS}
    for line in read_json_objects(content.splitlines()):
        part = None if isinstance(line, BadEntry) else line.value.get("part")
        if part in PARTS:
            parts[part].append(line)
        elif isinstance(line, BadEntry):
            parts[PARTS[0]].append(line)
        else:
            parts[PARTS[0]].append(BadEntry(f"line {line.number}", f"has no part; add {', '.join(PARTS)}"))
    return parts


def default_template(lines: Iterable[Line | BadEntry], source: str) -> str:
    """Return the default template for the columns of a file. Raises NoSuchFile, ImportRefused, or NotClassified."""
    columns = next((set(line.value) for line in lines if not isinstance(line, BadEntry)), set())
    for fields, template in TEMPLATES.items():
        if columns.issuperset(fields):
            return template
    raise DomainError(
        "NotClassified",
        f"{source} has neither a column 'sentence' nor the columns 'premise' and 'hypothesis'. Specify a --template "
        "with the columns of the file, for example '{text} [T] [T] [T] [P] .'.",
    )


def text_sets(
    parts: Mapping[str, list[LabelledRow]], names: Mapping[str, str], only_labels: Collection[str] = ()
) -> TextSets:
    """Return the train, dev, and test texts. Raises ImportRefused or NotClassified.

    names: names of the files by part. only_labels: labels of the texts to use. Default: all.
    """
    if unknown := set(only_labels) - {row.label for row in parts["train"]}:
        raise DomainError("NotClassified", f"No training text has the label {min(unknown)!r}. Use other labels.")
    if only_labels:
        parts = {part: [row for row in rows if row.label in only_labels] for part, rows in parts.items()}
    for part, rows in parts.items():
        if not rows:
            raise DomainError("NotClassified", f"{names[part]} has no texts. Add at least one {part} text.")
    labels = tuple(sorted({row.label for row in parts["train"]}))
    if len(labels) == 1:
        raise DomainError(
            "NotClassified",
            f"All texts of {names['train']} have the label {labels[0]!r}. At least two labels are required.",
        )
    for part, rows in parts.items():
        if unknown := [row for row in rows if row.label not in labels]:
            reason = "has the label {!r}, which does not occur in the training texts"
            faults = [BadEntry(f"line {row.number}", reason.format(row.label)) for row in unknown]
            raise ImportRefused(names[part], faults)
    return TextSets(parts, labels)


def balanced(texts: TextSets, seed: int) -> TextSets:
    """Return a random sample with equally many texts of each label in each part, in the order of the file."""
    rng, parts = Random(seed), {}
    for part, rows in texts.parts.items():
        by_label = {label: [row for row in rows if row.label == label] for label in texts.labels}
        size = min(map(len, by_label.values()))
        if not size:
            raise DomainError("NotClassified", f"A label has no {part} text, so {part} cannot be balanced. Add texts.")
        sample = [row for of_label in by_label.values() for row in rng.sample(of_label, size)]
        parts[part] = sorted(sample, key=lambda row: row.number)
    return TextSets(parts, texts.labels)


def subset(texts: TextSets, size: int, seed: int) -> TextSets:
    """Return the texts with a random subset of train: one text of each label, and others regardless of their label."""
    rng = Random(f"{size} {seed}")
    shuffled = rng.sample(texts.parts["train"], len(texts.parts["train"]))
    first = [next(row for row in shuffled if row.label == label) for label in texts.labels]
    numbers = {row.number for row in first}
    rest = [row for row in shuffled if row.number not in numbers][: size - len(first)]
    return TextSets({**texts.parts, "train": [*first, *rest]}, texts.labels)
