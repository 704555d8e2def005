"""Text classification by an LM's answers to a prompt, without fine-tuning (Shin et al. 2020, sections 2 to 4)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from kgharvest import code_version
from kgharvest.bulk.file_reading import Line, read_json_objects, read_lines
from kgharvest.contrib.probing.probes.facts import PARTS
from kgharvest.contrib.probing.probes.measurement import CostMeter
from kgharvest.contrib.probing.text_tasks.text_template import EncodedTexts, TextTemplate, encode_texts
from kgharvest.engine.language_models.base import EncodedPrompt, Tick, TokenIds
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.prompt_learning import autoprompt
from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams, LearnedTrigger, TriggerTask, TriggerTemplate
from kgharvest.engine.prompt_learning.objectives import QUERIES_AT_ONCE, Example, Likelihood, scores
from kgharvest.engine.types import BadSeed, OnProgress, ignore
from kgharvest.errors import BadEntry, DomainError, Faults, ImportRefused
from kgharvest.statistics.rates import rate

# Default templates by file columns (Shin et al. 2020, Table 3).
TEMPLATES = {
    ("sentence",): "{sentence} [T] [T] [T] [P] .",
    ("premise", "hypothesis"): "{premise} [P] [T] [T] [T] {hypothesis}",
}
LABEL = "label"  # column name
TEXTS_AT_ONCE = 4096
MOST_FOR_LABEL_TOKENS = 10_000  # maximum training texts used to select label tokens

LabelTokens = tuple[TokenIds, ...]  # tokens of label 0, 1, ...
Floats = NDArray[np.float64]


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


@dataclass(frozen=True)
class ClassifyRequest:
    """Inputs of a classification. label_words: words by label; if empty, `k` tokens are selected for each label.

    Raises EngineError for parameters that do not fit the template, and NotClassified for label words that do not fit
    the labels of the texts.
    """

    texts: TextSets
    template: TextTemplate
    manual: TextTemplate
    params: AutoPromptParams
    label_words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    k: int = 3

    def __post_init__(self) -> None:
        if unknown := set(self.label_words) - set(self.texts.labels):
            labels = ", ".join(self.texts.labels)
            raise DomainError(
                "NotClassified", f"Unknown label {min(unknown)!r}. The labels of the training texts are {labels}."
            )
        missing = [label for label in self.texts.labels if not self.label_words.get(label)]
        if self.label_words and missing:
            raise DomainError(
                "NotClassified", f"The label {missing[0]!r} has no words. Specify words for all labels or for none."
            )
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
    """Return the default template for the columns of a file. Raises NoSuchFile, ImportRefused, or NotClassified."""
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
    """Read the train, dev, and test texts. Raises NoSuchFile, ImportRefused, or NotClassified."""
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


# -- Classifiers -------------------------------------------------------------------------------------------------------


class EncodedText(NamedTuple):
    """A labeled, tokenized text. parts: tokens in the order of the template's fields."""

    parts: tuple[TokenIds, ...]
    label: int


@dataclass(frozen=True)
class ClassScores:
    """Scores of a classifier.

    correct: bool (N,). log_likelihood: mean log P(label | text) in nats, where P sums over the label's tokens.
    """

    correct: tuple[bool, ...]
    log_likelihood: float

    @property
    def accuracy(self) -> float:
        return sum(self.correct) / len(self.correct)


@dataclass(frozen=True)
class TextClassifier:
    """A prompt and the tokens of each label."""

    lm: MaskedLM
    prompt: EncodedPrompt
    label_tokens: LabelTokens

    def logprobs(self, texts: Sequence[EncodedText], tick: Tick = lambda: None) -> torch.Tensor:
        """Return (N, L): the log of the summed probability of each label's tokens (Eq. 1), in nats."""
        logprobs = []
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            part = texts[start : start + TEXTS_AT_ONCE]
            examples = [Example(text.parts, tokens) for text in part for tokens in self.label_tokens]
            logprobs.append(scores(self.lm, Likelihood(), [self.prompt], examples, tick).view(len(part), -1))
        return torch.cat(logprobs)

    def measure(self, texts: Sequence[EncodedText]) -> ClassScores:
        logprobs = self.logprobs(texts).cpu()
        labels = torch.tensor([text.label for text in texts])
        right = logprobs.gather(1, labels[:, None])
        return ClassScores(tuple((logprobs.argmax(dim=1) == labels).tolist()), right.mean().item())


def majority(train: Sequence[EncodedText], texts: Sequence[EncodedText]) -> ClassScores:
    """Return the scores of predicting the most frequent label of `train`. Probabilities are label shares in `train`."""
    counts = Counter(text.label for text in train)
    majority_label = max(counts, key=lambda label: counts[label])
    logprobs = [np.log(counts[text.label] / len(train)) for text in texts]
    return ClassScores(tuple(text.label == majority_label for text in texts), float(np.mean(logprobs)))


def given_label_tokens(lm: MaskedLM, words: Sequence[Sequence[str]]) -> LabelTokens:
    """Return the tokens of the words of each label. Raises BadSeed if a word has several tokens or is repeated."""
    word_of_token: dict[int, str] = {}
    for word in [word for of_label in words for word in of_label]:
        ids = lm.encode_entity(word)
        if len(ids) > 1:
            raise BadSeed(f"The label word {word!r} has {len(ids)} tokens in this LM. Use single-token words.")
        if ids[0] in word_of_token:
            raise BadSeed(
                f"The label word {word!r} has the same token as {word_of_token[ids[0]]!r}. Use different words."
            )
        word_of_token[ids[0]] = word
    return tuple(tuple(lm.encode_entity(word)[0] for word in of_label) for of_label in words)


def select_label_tokens(
    lm: MaskedLM, template: TriggerTemplate, train: Sequence[EncodedText], k: int, seed: int, tick: Tick = lambda: None
) -> LabelTokens:
    """Return the k tokens that are most indicative of each label.

    The LM reads the texts in `template`, with masks in place of triggers. seed: for a sample of a large `train`.
    """
    if len(train) > MOST_FOR_LABEL_TOKENS:  # draw a sample with the same maximum for each label
        by_label: dict[int, list[EncodedText]] = {}
        for text in train:
            by_label.setdefault(text.label, []).append(text)
        share, rng = MOST_FOR_LABEL_TOKENS // len(by_label), Random(seed)
        train = [text for texts in by_label.values() for text in rng.sample(texts, min(share, len(texts)))]
    prompt = template.fill((lm.mask_id,) * template.n_triggers)
    queries = [Likelihood().questions(lm, prompt, Example(text.parts))[0].query for text in train]
    vectors = lm.vectors(queries, QUERIES_AT_ONCE, tick).double().cpu().numpy()  # (N, d)
    labels = np.array([text.label for text in train])
    output_embeddings = lm.output_embeddings.double().cpu().numpy()
    return choose_label_tokens(vectors, labels, output_embeddings, lm.continues_entity, k)


def learn_classifier(
    lm: MaskedLM,
    template: TriggerTemplate,
    label_tokens: LabelTokens,
    parts: tuple[Sequence[EncodedText], Sequence[EncodedText]],
    params: AutoPromptParams,
    on_progress: OnProgress = ignore,
) -> tuple[TextClassifier, LearnedTrigger]:
    """Learn triggers on train and return the classifier with the best triggers on dev. parts: train and dev.

    Triggers are ranked by the likelihood of the labels, as in the paper. Label tokens are not allowed as triggers.
    Raises EngineError.
    """
    train, dev = ([Example(text.parts, label_tokens[text.label]) for text in part] for part in parts)
    allowed = autoprompt.allowed_tokens(lm, {token for tokens in label_tokens for token in tokens})
    task = TriggerTask(Likelihood(), train, dev, allowed)
    result = autoprompt.search_from_masks(lm, template, task, params, on_progress)
    return TextClassifier(lm, result.prompt, label_tokens), result


def choose_label_tokens(
    vectors: Floats, labels: NDArray[np.int64], output_embeddings: Floats, allowed: NDArray[np.bool_], k: int
) -> tuple[TokenIds, ...]:
    """Return k tokens for each label, the most indicative first. Each token belongs to one label.

    vectors: (N, d), inputs of the LM's output projection at [P], one for each of N texts. labels: (N,), the labels of
    the texts, numbered from 0. output_embeddings: (V, d), weights of that projection. allowed: (V,).
    A logistic regression of the labels on `vectors`, applied to output embeddings (Eq. 5), gives the odds of each label
    for each token. In order of decreasing odds, a token is assigned to a label if the token is unassigned and the label
    has fewer than k tokens.
    """
    weights, biases = fit_logistic(vectors, labels)
    odds = log_odds(output_embeddings @ weights.T + biases)  # (V, L)
    odds[~allowed] = -np.inf
    tokens_of_label: list[list[int]] = [[] for _ in biases]
    used_tokens: set[int] = set()
    for index in np.argsort(-odds, axis=None, kind="stable")[: int(allowed.sum()) * len(biases)].tolist():
        token, label = divmod(index, len(biases))
        if token not in used_tokens and len(tokens_of_label[label]) < k:
            tokens_of_label[label].append(token)
            used_tokens.add(token)
    return tuple(map(tuple, tokens_of_label))


def log_odds(logits: Floats) -> Floats:
    """Return (V, L): the log-odds of softmax(`logits`). They order tokens as the probabilities do, without ties."""
    rest = np.stack([logsumexp(np.delete(logits, label, axis=1), axis=1) for label in range(logits.shape[1])], axis=1)
    odds: Floats = logits - rest
    return odds


def fit_logistic(vectors: Floats, labels: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return weights (L, d) and biases (L,) that minimize the summed log-loss plus half the sum of squared weights."""
    n_labels, width = int(labels.max()) + 1, vectors.shape[1]
    is_label = np.eye(n_labels)[labels]  # (N, L)

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights, biases = flat[: n_labels * width].reshape(n_labels, width), flat[n_labels * width :]
        logits = vectors @ weights.T + biases  # (N, L)
        logprobs = logits - logsumexp(logits, axis=1, keepdims=True)
        excess = np.exp(logprobs) - is_label
        gradient = np.concatenate([(excess.T @ vectors + weights).ravel(), excess.sum(axis=0)])
        return -float((logprobs * is_label).sum()) + 0.5 * float((weights**2).sum()), gradient

    flat = scipy.optimize.minimize(loss, np.zeros(n_labels * (width + 1)), jac=True, method="L-BFGS-B").x
    return flat[: n_labels * width].reshape(n_labels, width), flat[n_labels * width :]


# -- Methods and records -----------------------------------------------------------------------------------------------


def classification_records(
    lm: MaskedLM, control: MaskedLM | None, request: ClassifyRequest, on_progress: OnProgress = ignore
) -> Iterator[dict[str, Any]]:
    """Yield one record per method: majority, manual prompt, and AutoPrompt; for the last two, also on the control."""
    texts = _encoded(lm, request.manual, request)
    scores_by_part = {part: majority(texts["train"].examples, texts[part].examples) for part in PARTS[1:]}
    cost = {"is_control": False, "forwards": 0, "seconds": 0.0}
    yield _record("majority", lm, request, texts, scores_by_part) | cost
    for method in ("manual", "autoprompt"):
        for tested_lm in [lm, control] if control else [lm]:
            meter = CostMeter(tested_lm)
            record = _prompt_record(method, tested_lm, request, on_progress)
            yield record | {"is_control": tested_lm is not lm} | meter.read()


def _encoded(lm: MaskedLM, template: TextTemplate, request: ClassifyRequest) -> dict[str, EncodedTexts[EncodedText]]:
    """Encode the texts of each part. Raises NotClassified if a part, or a label in train, has no encodable text."""
    number = {label: index for index, label in enumerate(request.texts.labels)}
    texts_by_part = {
        part: encode_texts(lm, template, ((row.texts, number[row.label]) for row in rows), EncodedText)
        for part, rows in request.texts.parts.items()
    }
    for part, texts in texts_by_part.items():
        if not texts.examples:
            reasons = ", ".join(f"{n} with {reason}" for reason, n in texts.left_out.items())
            raise DomainError("NotClassified", f"{lm.name} cannot encode any {part} text ({reasons}). Add other texts.")
    encoded_labels = {text.label for text in texts_by_part["train"].examples}
    if missing := [label for label in request.texts.labels if number[label] not in encoded_labels]:
        raise DomainError(
            "NotClassified", f"{lm.name} cannot encode any training text of the label {missing[0]!r}. Add other texts."
        )
    return texts_by_part


def _prompt_record(method: str, lm: MaskedLM, request: ClassifyRequest, on_progress: OnProgress) -> dict[str, Any]:
    """Return the record of the manual prompt or AutoPrompt."""
    template = request.template if method == "autoprompt" else request.manual
    texts, encoded, labels = _encoded(lm, template, request), template.encode(lm), request.texts.labels
    train, dev = texts["train"].examples, texts["dev"].examples
    if request.label_words:
        label_tokens = given_label_tokens(lm, [request.label_words[label] for label in labels])
    else:
        label_tokens = select_label_tokens(lm, encoded, train, request.k, request.params.seed)
    words = lm.tokens.texts()
    trigger: dict[str, Any] = {}
    if method == "autoprompt":
        classifier, learned = learn_classifier(lm, encoded, label_tokens, (train, dev), request.params, on_progress)
        trigger = {"trigger": [words[token] for token in learned.trigger], "trigger_ids": list(learned.trigger)}
    else:
        classifier = TextClassifier(lm, encoded.fill((lm.mask_id,) * encoded.n_triggers), label_tokens)
    scores_by_part = {part: classifier.measure(texts[part].examples) for part in PARTS[1:]}
    return _record(method, lm, request, texts, scores_by_part) | {
        "template": template.text,
        "prompt": template.prompt_text(lm, classifier.prompt),
        "labels": {
            label: [words[token] for token in tokens] for label, tokens in zip(labels, label_tokens, strict=True)
        },
        "label_ids": dict(zip(labels, map(list, label_tokens), strict=True)),
        **trigger,
    }


def _record(
    method: str,
    lm: MaskedLM,
    request: ClassifyRequest,
    texts: Mapping[str, EncodedTexts[EncodedText]],
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
