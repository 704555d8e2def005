"""Text classification with an LM that was not trained for it: files, methods, and records."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kgharvest import code_version
from kgharvest.bulk.file_reading import Line, read_json_objects, read_lines
from kgharvest.contrib.probing.probes.facts import PARTS
from kgharvest.contrib.probing.probes.measurement import CostMeter
from kgharvest.contrib.probing.text_tasks.label_methods import (
    ClassScores,
    EncodedTexts,
    LabelledText,
    LabelTokens,
    TextClassifier,
    encode_texts,
    given_label_tokens,
    learn_classifier,
    majority,
    select_label_tokens,
)
from kgharvest.contrib.probing.text_tasks.text_template import TextTemplate
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams
from kgharvest.engine.types import OnProgress, ignore
from kgharvest.errors import BadEntry, DomainError, Faults, ImportRefused
from kgharvest.statistics.rates import rate

# Default templates by file columns (Shin et al. 2020, Table 3).
TEMPLATES = {
    ("sentence",): "{sentence} [T] [T] [T] [P] .",
    ("premise", "hypothesis"): "{premise} [P] [T] [T] [T] {hypothesis}",
}
LABEL = "label"  # column name


class LabelledRow(NamedTuple):
    """A line of a file. texts: by column."""

    number: int
    texts: Mapping[str, str]
    label: str


@dataclass(frozen=True)
class TextSets:
    """Rows by part, and all labels, sorted. Every label occurs in train."""

    parts: Mapping[str, Sequence[LabelledRow]]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class ClassifyRequest:
    """Inputs of a classification. label_words: by label; if empty, `k` tokens per label are selected automatically.

    Raises EngineError for parameters that do not fit the template.
    """

    texts: TextSets
    template: TextTemplate
    manual: TextTemplate
    params: AutoPromptParams
    label_words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    k: int = 3

    def __post_init__(self) -> None:
        self.params.check(self.template.n_triggers, self.template.n_triggers)


# -- Files: JSON lines, or tab-separated columns with a header ---------------------------------------------------------


def read_labelled(path: Path, columns: Sequence[str]) -> list[LabelledRow]:
    """Return the rows with the texts in `columns`. Raises NoSuchFile, or ImportRefused with all bad lines."""
    rows, faults = [], Faults()
    for line in _lines(path):
        fault = line if isinstance(line, BadEntry) else _fault(line, columns)
        if fault:
            faults.add(fault)
        else:
            texts = {column: line.value[column] for column in columns}
            rows.append(LabelledRow(line.number, texts, str(line.value[LABEL]).strip()))
    faults.refuse(path.name)
    return rows


def _lines(path: Path) -> Iterator[Line | BadEntry]:
    """Yield lines of a .tsv file or, for any other suffix, of JSON lines."""
    read = _tab_separated if path.suffix.lower() == ".tsv" else read_json_objects
    return read(read_lines(path))


def _tab_separated(lines: Iterable[str]) -> Iterator[Line | BadEntry]:
    rows = (line.rstrip("\r\n").split("\t") for line in lines)
    header = next(rows, [])
    for number, row in enumerate(rows, start=2):
        if len(row) == len(header):
            yield Line(number, dict(zip(header, row, strict=True)))
        elif row != [""]:
            yield BadEntry(f"line {number}", f"has {len(row)} columns; the header has {len(header)}")


def _fault(line: Line, columns: Sequence[str]) -> BadEntry | None:
    location = f"line {line.number}"
    for column in columns:
        if column not in line.value:
            return BadEntry(location, f"has no {column!r}")
        if not isinstance(line.value[column], str) or not line.value[column].strip():
            return BadEntry(location, f"has no text in {column!r}")
    label = line.value.get(LABEL)
    if not isinstance(label, str | int) or not str(label).strip():
        return BadEntry(location, f"has no {LABEL!r} that is a text or a whole number")
    return None


# -- Inputs ------------------------------------------------------------------------------------------------------------


def default_template(path: Path) -> str:
    """Return the default template for the columns of a file. Raises NoSuchFile, ImportRefused or NotClassified."""
    columns = next((set(line.value) for line in _lines(path) if not isinstance(line, BadEntry)), set())
    for fields, template in TEMPLATES.items():
        if columns.issuperset(fields):
            return template
    raise DomainError(
        "NotClassified",
        f"{path.name} has neither a column 'sentence' nor the columns 'premise' and 'hypothesis'. Specify a --template "
        "with the columns of the file, for example '{text} [T] [T] [T] [P] .'.",
    )


def read_text_sets(files: Mapping[str, Path], columns: Sequence[str]) -> TextSets:
    """Read train, dev and test. Raises NoSuchFile, ImportRefused or NotClassified."""
    parts = {part: read_labelled(files[part], columns) for part in PARTS}
    for part, rows in parts.items():
        if not rows:
            raise DomainError("NotClassified", f"{files[part].name} has no texts. Add at least one {part} text.")
    labels = tuple(sorted({row.label for row in parts["train"]}))
    if len(labels) == 1:
        raise DomainError(
            "NotClassified",
            f"All texts of {files['train'].name} have the label {labels[0]!r}. At least two labels are required.",
        )
    for part, rows in parts.items():
        if unknown := [row for row in rows if row.label not in labels]:
            reason = "has the label {!r}, which does not occur in the training texts"
            faults = [BadEntry(f"line {row.number}", reason.format(row.label)) for row in unknown]
            raise ImportRefused(files[part].name, faults)
    return TextSets(parts, labels)


def check_label_words(words: Mapping[str, Sequence[str]], labels: Sequence[str]) -> None:
    """Raises NotClassified unless `words` is empty or has words for each label and no other label."""
    if not words:
        return
    if unknown := set(words) - set(labels):
        raise DomainError(
            "NotClassified", f"Unknown label {min(unknown)!r}. The training texts have {', '.join(labels)}."
        )
    if missing := [label for label in labels if not words.get(label)]:
        raise DomainError(
            "NotClassified", f"The label {missing[0]!r} has no words. Specify words for all labels or for none."
        )


# -- Methods -----------------------------------------------------------------------------------------------------------


def classification_records(
    lm: MaskedLM, control: MaskedLM | None, request: ClassifyRequest, on_progress: OnProgress = ignore
) -> Iterator[dict[str, Any]]:
    """Yield one record per method: majority, manual prompt, AutoPrompt; the latter two also on the control."""
    texts = _encoded(lm, request.manual, request)
    scores = {part: majority(texts["train"].examples, texts[part].examples) for part in PARTS[1:]}
    cost = {"is_control": False, "forwards": 0, "seconds": 0.0}
    yield _record("majority", lm, request, texts, scores) | cost
    for method_record in (_manual_record, _autoprompt_record):
        for tested_lm in [lm, control] if control else [lm]:
            meter = CostMeter(tested_lm)
            record = method_record(tested_lm, request, on_progress)
            yield record | {"is_control": tested_lm is not lm} | meter.columns()


def _manual_record(lm: MaskedLM, request: ClassifyRequest, on_progress: OnProgress) -> dict[str, Any]:
    texts = _encoded(lm, request.manual, request)
    template = request.manual.encode(lm)
    prompt = template.fill((lm.mask_id,) * template.n_triggers)
    classifier = TextClassifier(lm, prompt, _label_tokens(lm, request.manual, texts, request))
    return _classifier_record("manual", classifier, request.manual, request, texts)


def _autoprompt_record(lm: MaskedLM, request: ClassifyRequest, on_progress: OnProgress) -> dict[str, Any]:
    texts = _encoded(lm, request.template, request)
    label_tokens = _label_tokens(lm, request.template, texts, request)
    parts = texts["train"].examples, texts["dev"].examples
    classifier, learned = learn_classifier(
        lm, request.template.encode(lm), label_tokens, parts, request.params, on_progress
    )
    record = _classifier_record("autoprompt", classifier, request.template, request, texts)
    words = lm.tokens.texts()
    return record | {"trigger": [words[token] for token in learned.trigger], "trigger_ids": list(learned.trigger)}


def _encoded(lm: MaskedLM, template: TextTemplate, request: ClassifyRequest) -> dict[str, EncodedTexts]:
    """Raises NotClassified if a part, or a label in train, has no text that the LM can encode."""
    number = {label: index for index, label in enumerate(request.texts.labels)}
    encoded = template.encode(lm)
    texts_by_part = {
        part: encode_texts(lm, template, encoded, [LabelledText(row.texts, number[row.label]) for row in rows])
        for part, rows in request.texts.parts.items()
    }
    for part, texts in texts_by_part.items():
        if not texts.examples:
            reasons = ", ".join(f"{n} with {reason}" for reason, n in texts.left_out.items())
            raise DomainError("NotClassified", f"{lm.name} can encode no {part} text ({reasons}). Add other texts.")
    encoded_labels = {text.label for text in texts_by_part["train"].examples}
    if missing := [label for label in request.texts.labels if number[label] not in encoded_labels]:
        raise DomainError(
            "NotClassified", f"{lm.name} can encode no training text of the label {missing[0]!r}. Add other texts."
        )
    return texts_by_part


def _label_tokens(
    lm: MaskedLM, template: TextTemplate, texts: Mapping[str, EncodedTexts], request: ClassifyRequest
) -> LabelTokens:
    if request.label_words:
        return given_label_tokens(lm, [request.label_words[label] for label in request.texts.labels])
    return select_label_tokens(lm, template.encode(lm), texts["train"].examples, request.k, request.params.seed)


# -- Records -----------------------------------------------------------------------------------------------------------


def _classifier_record(
    method: str,
    classifier: TextClassifier,
    template: TextTemplate,
    request: ClassifyRequest,
    texts: Mapping[str, EncodedTexts],
) -> dict[str, Any]:
    lm, labels = classifier.lm, request.texts.labels
    scores = {part: classifier.measure(texts[part].examples) for part in PARTS[1:]}
    words = lm.tokens.texts()
    return _record(method, lm, request, texts, scores) | {
        "template": template.text,
        "prompt": template.prompt_text(lm, classifier.prompt),
        "labels": {
            label: [words[token] for token in tokens]
            for label, tokens in zip(labels, classifier.label_tokens, strict=True)
        },
        "label_ids": dict(zip(labels, map(list, classifier.label_tokens), strict=True)),
    }


def _record(
    method: str,
    lm: MaskedLM,
    request: ClassifyRequest,
    texts: Mapping[str, EncodedTexts],
    scores: Mapping[str, ClassScores],
) -> dict[str, Any]:
    accuracy = rate(sum(scores["test"].correct), len(scores["test"].correct))
    return {
        "method": method,
        "lm": lm.name,
        "revision": lm.revision,
        **{f"n_{part}": len(texts[part].examples) for part in PARTS},
        "left_out": {part: dict(texts[part].left_out) for part in PARTS},
        "n_cut": {part: texts[part].n_cut for part in PARTS},
        "dev_accuracy": scores["dev"].accuracy,
        "dev_log_likelihood": scores["dev"].log_likelihood,
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "log_likelihood": scores["test"].log_likelihood,
        "seed": request.params.seed,
        "code_version": code_version(),
    }
