"""Text classification by an LM's answers to a prompt, without fine-tuning (Shin et al. 2020, sections 2 to 4)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp

from kgharvest.contrib.probing.text_tasks.labelled_texts import TextSets, labelled_texts
from kgharvest.contrib.probing.text_tasks.options import (
    DEFAULT_METHODS,
    NO_CURVE,
    NO_GRID,
    Grid,
    LearningCurve,
    search_params,
)
from kgharvest.contrib.probing.text_tasks.text_template import TextTemplate
from kgharvest.engine.language_models.base import EncodedPrompt, Tick, TokenIds
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.prompt_learning import autoprompt
from kgharvest.engine.prompt_learning.autoprompt import LearnedTrigger, TriggerTask, TriggerTemplate
from kgharvest.engine.prompt_learning.objectives import QUERIES_AT_ONCE, Example, Likelihood, scores
from kgharvest.engine.prompt_learning.training import TrainingParams
from kgharvest.engine.types import AutoPromptParams, BadSeed, OnProgress, ignore
from kgharvest.statistics.rates import Rate, rate

FINE_TUNING = TrainingParams(epochs=20, warmup=0.1)  # for small data sets (Mosbach et al. 2020)
TEXTS_AT_ONCE = 4096
MOST_FOR_LABEL_TOKENS = 10_000  # maximum training texts used to select label tokens

LabelTokens = tuple[TokenIds, ...]  # tokens of label 0, 1, ...
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClassifyRequest:
    """Inputs of a classification. label_words: words by label; if empty, `k` tokens are selected for each label.

    training: parameters of fine-tuning.
    """

    texts: TextSets
    template: TextTemplate
    manual: TextTemplate
    params: AutoPromptParams
    label_words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    k: int = 3
    methods: Sequence[str] = DEFAULT_METHODS
    training: TrainingParams = FINE_TUNING
    grid: Grid = NO_GRID
    curve: LearningCurve = NO_CURVE


def classify_request(source: Mapping[str, Path] | str, options: Mapping[str, Any]) -> ClassifyRequest:
    """Return the request for options of the command, page, or API. Raises DomainError, EngineError, or ImportRefused.

    source: as in `labelled_texts`.
    """
    texts, template, manual = labelled_texts(source, options)
    training = {name: options[name] for name in ("learning_rate", "epochs", "batch_size")}
    return ClassifyRequest(
        texts,
        template,
        manual,
        search_params(options),
        options["label_words"],
        options["label_tokens"],
        options["methods"],
        replace(FINE_TUNING, **training),
        Grid(*(options[f"grid_{name}"] for name in ("triggers", "label_tokens", "candidates"))),
        LearningCurve(options["train_sizes"], options["subsets"]),
    )


# -- Classifiers -------------------------------------------------------------------------------------------------------


class EncodedText(NamedTuple):
    """A labeled, tokenized text. parts: tokens in the order of the template's fields."""

    parts: tuple[TokenIds, ...]
    label: int


@dataclass(frozen=True)
class ClassScores:
    """Scores of a classifier.

    predicted, labels: (N,), numbers of labels. log_likelihood: mean log P(label | text) in nats; for prompts, P sums
    over the label's tokens in the whole vocabulary.
    """

    predicted: tuple[int, ...]
    labels: tuple[int, ...]
    log_likelihood: float

    @property
    def n_correct(self) -> int:
        return sum(predicted == label for predicted, label in zip(self.predicted, self.labels, strict=True))

    @property
    def accuracy(self) -> float:
        return self.n_correct / len(self.labels)

    def precision(self, label: int) -> Rate:
        """Return the share of texts with this label among the texts that are classified so."""
        labels = [true for predicted, true in zip(self.predicted, self.labels, strict=True) if predicted == label]
        return rate(labels.count(label), len(labels))


def class_scores(logprobs: torch.Tensor, texts: Sequence[EncodedText]) -> ClassScores:
    """Return the scores of log-probabilities (N, L) of the labels of `texts`."""
    labels = torch.tensor([text.label for text in texts])
    right = logprobs.cpu().gather(1, labels[:, None])
    return ClassScores(tuple(logprobs.argmax(dim=1).tolist()), tuple(labels.tolist()), right.mean().item())


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
        return class_scores(self.logprobs(texts), texts)


def majority(train: Sequence[EncodedText], texts: Sequence[EncodedText]) -> ClassScores:
    """Return the scores of predicting the most frequent label of `train`. Probabilities are label shares in `train`."""
    counts = Counter(text.label for text in train)
    logprobs = torch.tensor([counts[label] / len(train) for label in range(max(counts) + 1)]).log()
    return class_scores(logprobs.expand(len(texts), -1), texts)


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
