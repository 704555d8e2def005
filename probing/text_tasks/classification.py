"""Classify texts with an LM that is not trained for it: what is asked, with which methods, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from evaluation.statistics.rates import rate
from kgharvest.engine.types import OnProgress, ignore
from kgharvest.errors import BadEntry, DomainError, ImportRefused
from kgharvest.version import code_version
from probing.probes.facts import PARTS
from probing.text_tasks.text_files import LabelledRow, columns_of, read_labelled

if TYPE_CHECKING:
    from kgharvest.engine.language_models.masked import MaskedLM
    from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams
    from kgharvest.engine.text_tasks.classification import ClassScores, EncodedTexts, LabelTokens, TextClassifier
    from kgharvest.engine.text_tasks.text_template import TextTemplate

# By the columns of the files (Shin et al. 2020, Table 3).
TEMPLATES = {
    ("sentence",): "{sentence} [T] [T] [T] [P] .",
    ("premise", "hypothesis"): "{premise} [P] [T] [T] [T] {hypothesis}",
}


class NotClassified(DomainError):
    """Texts, labels or words for them that nothing can be learned from."""


@dataclass(frozen=True)
class TextSets:
    """Rows by part, and their labels in order; every label is among those of train."""

    parts: Mapping[str, Sequence[LabelledRow]]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class ClassifyRequest:
    """label_words: by label; empty where the LM's vectors choose `k` tokens for each. Raises EngineError."""

    texts: TextSets
    template: TextTemplate
    manual: TextTemplate
    params: AutoPromptParams
    label_words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    k: int = 3

    def __post_init__(self) -> None:
        self.params.check(self.template.n_triggers, self.template.n_triggers)


# -- what is asked -----------------------------------------------------------------------------------------------------


def default_template(path: Path) -> str:
    """Return the template for the columns of a file. Raises NotClassified if there is none for them."""
    columns = columns_of(path)
    for fields, template in TEMPLATES.items():
        if set(fields) <= set(columns):
            return template
    raise NotClassified(
        f"{path.name} has no column 'sentence', nor 'premise' and 'hypothesis'; "
        "give a --template with its own columns, such as '{text} [T] [T] [T] [P] .'."
    )


def read_text_sets(files: Mapping[str, Path], columns: Sequence[str]) -> TextSets:
    """Read train, dev and test. Raises NoSuchFile, ImportRefused or NotClassified."""
    parts = {part: read_labelled(files[part], columns) for part in PARTS}
    for part, rows in parts.items():
        if not rows:
            raise NotClassified(f"{files[part].name} has no texts; {part} needs at least one.")
    labels = tuple(sorted({row.label for row in parts["train"]}))
    if len(labels) == 1:
        raise NotClassified(
            f"All texts of {files['train'].name} have the label {labels[0]!r}; give texts of two or more."
        )
    for part, rows in parts.items():
        if unknown := [row for row in rows if row.label not in labels]:
            reason = "has the label {!r}, which no training text has"
            faults = [BadEntry(f"line {row.number}", reason.format(row.label)) for row in unknown]
            raise ImportRefused(files[part].name, faults)
    return TextSets(parts, labels)


def check_label_words(words: Mapping[str, Sequence[str]], labels: Sequence[str]) -> None:
    """Raises NotClassified unless `words`, if there are any, has words for each label and for nothing else."""
    if not words:
        return
    if unknown := set(words) - set(labels):
        raise NotClassified(f"There is no label {min(unknown)!r}; the training texts have {', '.join(labels)}.")
    if lacking := [label for label in labels if not words.get(label)]:
        raise NotClassified(f"The label {lacking[0]!r} has no word; give words for all labels, or for none.")


# -- asking ------------------------------------------------------------------------------------------------------------


def classification_records(
    lm: MaskedLM, control: MaskedLM | None, request: ClassifyRequest, on_progress: OnProgress = ignore
) -> Iterator[dict[str, Any]]:
    """Yield a record of each method: the majority, the manual prompt, AutoPrompt; the last two on the control too."""
    subjects = [(lm, False), *([(control, True)] if control else [])]
    yield _majority_record(lm, request)
    for learn in (_manual_record, _autoprompt_record):
        for subject, is_control in subjects:
            start, before = perf_counter(), subject.n_read["sequences"]
            record = learn(subject, request, on_progress)
            cost = {
                "forwards": subject.n_read["sequences"] - before,
                "seconds": round(perf_counter() - start, 3),
            }
            yield record | {"is_control": is_control} | cost


def _majority_record(lm: MaskedLM, request: ClassifyRequest) -> dict[str, Any]:
    from kgharvest.engine.text_tasks.classification import majority

    texts = _encoded(lm, request.manual, request)
    scores = {part: majority(texts["train"].examples, texts[part].examples) for part in PARTS[1:]}
    return _record("majority", lm, request, texts, scores) | {"is_control": False, "forwards": 0, "seconds": 0.0}


def _manual_record(lm: MaskedLM, request: ClassifyRequest, on_progress: OnProgress) -> dict[str, Any]:
    from kgharvest.engine.text_tasks.classification import TextClassifier

    texts = _encoded(lm, request.manual, request)
    template = request.manual.encode(lm)
    prompt = template.filled((lm.mask_id,) * template.n_triggers)
    classifier = TextClassifier(lm, prompt, _label_tokens(lm, request.manual, texts, request))
    return _classifier_record("manual", classifier, request.manual, request, texts)


def _autoprompt_record(lm: MaskedLM, request: ClassifyRequest, on_progress: OnProgress) -> dict[str, Any]:
    from kgharvest.engine.text_tasks.classification import learn_classifier

    texts = _encoded(lm, request.template, request)
    label_tokens = _label_tokens(lm, request.template, texts, request)
    parts = texts["train"].examples, texts["dev"].examples
    classifier, found = learn_classifier(
        lm, request.template.encode(lm), label_tokens, parts, request.params, on_progress
    )
    record = _classifier_record("autoprompt", classifier, request.template, request, texts)
    words = lm.tokens.texts()
    return record | {"trigger": [words[token] for token in found.trigger], "trigger_ids": list(found.trigger)}


def _encoded(lm: MaskedLM, template: TextTemplate, request: ClassifyRequest) -> dict[str, EncodedTexts]:
    """Raises NotClassified if the LM can be asked no text of a part, or of a label in train."""
    from kgharvest.engine.text_tasks.classification import LabelledText, encode_texts

    number = {label: index for index, label in enumerate(request.texts.labels)}
    encoded = template.encode(lm)
    found = {
        part: encode_texts(lm, template, encoded, [LabelledText(row.texts, number[row.label]) for row in rows])
        for part, rows in request.texts.parts.items()
    }
    for part, texts in found.items():
        if not texts.examples:
            reasons = ", ".join(f"{n} with {reason}" for reason, n in texts.left_out.items())
            raise NotClassified(f"{lm.name} can be asked no text of {part} ({reasons}); give others.")
    kept = {text.label for text in found["train"].examples}
    if lost := [label for label in request.texts.labels if number[label] not in kept]:
        raise NotClassified(f"{lm.name} can be asked no training text with the label {lost[0]!r}; give others.")
    return found


def _label_tokens(
    lm: MaskedLM, template: TextTemplate, texts: Mapping[str, EncodedTexts], request: ClassifyRequest
) -> LabelTokens:
    from kgharvest.engine.text_tasks.classification import given_label_tokens, select_label_tokens

    if request.label_words:
        return given_label_tokens(lm, [request.label_words[label] for label in request.texts.labels])
    return select_label_tokens(lm, template.encode(lm), texts["train"].examples, request.k, request.params.seed)


# -- records -----------------------------------------------------------------------------------------------------------


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
        "prompt": template.in_writing(lm, classifier.prompt),
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
