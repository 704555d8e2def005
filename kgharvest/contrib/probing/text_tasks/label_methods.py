"""Text classification by the answers of an LM to a prompt, without fine-tuning (Shin et al. 2020, sections 2 to 4)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from kgharvest.contrib.probing.text_tasks.text_template import (
    SPECIAL_TOKENS,
    TextTemplate,
    encode_fields,
    room_for_texts,
)
from kgharvest.engine.language_models.base import EncodedPrompt, Tick, TokenIds
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.prompt_learning import autoprompt
from kgharvest.engine.prompt_learning.autoprompt import AutoPromptParams, LearnedTrigger, TriggerTask, TriggerTemplate
from kgharvest.engine.prompt_learning.objectives import QUERIES_AT_ONCE, Example, Likelihood, scores
from kgharvest.engine.types import BadSeed, BadText, OnProgress, ignore

TEXTS_AT_ONCE = 4096
MOST_FOR_LABEL_TOKENS = 10_000  # training texts to select label tokens with

LabelTokens = tuple[TokenIds, ...]  # of label 0, 1, ...


class LabelledText(NamedTuple):
    """A text with the index of its label. texts: by field of the template."""

    texts: Mapping[str, str]
    label: int


class EncodedText(NamedTuple):
    """A labeled text in tokens. parts: in the order of the template's fields."""

    parts: tuple[TokenIds, ...]
    label: int


@dataclass(frozen=True)
class EncodedTexts:
    """Encoded texts. left_out: number of texts that cannot be encoded, by reason. n_cut: number of truncated texts."""

    examples: tuple[EncodedText, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    n_cut: int = 0


@dataclass(frozen=True)
class ClassScores:
    """Scores of a classifier.

    correct: bool (N,). log_likelihood: mean log P(label | text), in nats, summed over the tokens of the label.
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
        parts = [texts[start : start + TEXTS_AT_ONCE] for start in range(0, len(texts), TEXTS_AT_ONCE)]
        return torch.cat([self._logprobs(part, tick) for part in parts])

    def _logprobs(self, texts: Sequence[EncodedText], tick: Tick) -> torch.Tensor:
        examples = [Example(text.parts, tokens) for text in texts for tokens in self.label_tokens]
        return scores(self.lm, Likelihood(), [self.prompt], examples, tick).view(len(texts), -1)

    def measure(self, texts: Sequence[EncodedText]) -> ClassScores:
        logprobs = self.logprobs(texts).cpu()
        labels = torch.tensor([text.label for text in texts])
        right = logprobs.gather(1, labels[:, None])
        return ClassScores(tuple((logprobs.argmax(dim=1) == labels).tolist()), right.mean().item())


def majority(train: Sequence[EncodedText], texts: Sequence[EncodedText]) -> ClassScores:
    """Return the scores of always predicting the most frequent label. Probabilities are label shares in `train`."""
    counts = Counter(text.label for text in train)
    majority_label = max(counts, key=lambda label: counts[label])
    logprobs = [np.log(counts[text.label] / len(train)) for text in texts]
    return ClassScores(tuple(text.label == majority_label for text in texts), float(np.mean(logprobs)))


def encode_texts(
    lm: MaskedLM, template: TextTemplate, encoded: TriggerTemplate, texts: Sequence[LabelledText]
) -> EncodedTexts:
    """Return the texts in tokens, truncated to fit in `encoded`, which is `template` in tokens."""
    room = room_for_texts(lm, encoded)
    examples, left_out, n_cut = [], Counter[str](), 0
    for text in texts:
        try:
            parts, is_cut = encode_fields(lm, template, text.texts, room)
        except BadText:
            left_out[SPECIAL_TOKENS] += 1
            continue
        n_cut += is_cut
        examples.append(EncodedText(parts, text.label))
    return EncodedTexts(tuple(examples), dict(left_out), n_cut)


def given_label_tokens(lm: MaskedLM, words: Sequence[Sequence[str]]) -> LabelTokens:
    """Return the tokens of `words` by label. Raises BadSeed if a word has several tokens or is repeated."""
    word_of_token: dict[int, str] = {}
    for word in [word for of_label in words for word in of_label]:
        ids = lm.encode_entity(word)
        if len(ids) > 1:
            raise BadSeed(f"The label word {word!r} has {len(ids)} tokens in this LM. Use words of one token.")
        if ids[0] in word_of_token:
            raise BadSeed(
                f"The label word {word!r} has the same token as {word_of_token[ids[0]]!r}. Use each word for one label."
            )
        word_of_token[ids[0]] = word
    return tuple(tuple(lm.encode_entity(word)[0] for word in of_label) for of_label in words)


def select_label_tokens(
    lm: MaskedLM, template: TriggerTemplate, train: Sequence[EncodedText], k: int, seed: int, tick: Tick = lambda: None
) -> LabelTokens:
    """Return the k most indicative tokens of each label, in `template` with masks in place of triggers."""
    train = sample_texts(train, MOST_FOR_LABEL_TOKENS, Random(seed))
    prompt = template.fill((lm.mask_id,) * template.n_triggers)
    queries = [Likelihood().questions(lm, prompt, Example(text.parts))[0].query for text in train]
    vectors = lm.vectors(queries, QUERIES_AT_ONCE, tick).double().cpu().numpy()  # (N, d)
    labels = np.array([text.label for text in train])
    output_embeddings = lm.output_embeddings.double().cpu().numpy()
    return choose_label_tokens(vectors, labels, output_embeddings, lm.continues_entity, k)


def sample_texts(texts: Sequence[EncodedText], most: int, rng: Random) -> list[EncodedText]:
    """Return all texts if there are at most `most`, otherwise a sample with an equal maximum for each label."""
    if len(texts) <= most:
        return list(texts)
    by_label: dict[int, list[EncodedText]] = {}
    for text in texts:
        by_label.setdefault(text.label, []).append(text)
    share = most // len(by_label)
    return [text for of_label in by_label.values() for text in rng.sample(of_label, min(share, len(of_label)))]


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


Floats = NDArray[np.float64]


def choose_label_tokens(
    vectors: Floats, labels: NDArray[np.int64], output_embeddings: Floats, allowed: NDArray[np.bool_], k: int
) -> tuple[TokenIds, ...]:
    """Return k tokens for each label, the most indicative first. Each token belongs to one label.

    vectors: (N, d), the inputs of the LM's output projection at [P], for `labels` (N,) from 0.
    output_embeddings: (V, d), the weights of that projection. allowed: (V,).
    A logistic regression of the labels on `vectors`, applied to output embeddings (Eq. 5), gives the odds. Each token
    is assigned to the label with the largest odds that has fewer than k tokens.
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
    """Return (V, L): the log-odds of softmax(`logits`). They have the order of the probabilities, but never tie."""
    rest = np.stack([logsumexp(np.delete(logits, label, axis=1), axis=1) for label in range(logits.shape[1])], axis=1)
    odds: Floats = logits - rest
    return odds


def fit_logistic(vectors: Floats, labels: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the weights (L, d) and biases (L,) that minimize the summed log-loss plus half the squared weights."""
    n_labels, width = int(labels.max()) + 1, vectors.shape[1]
    is_label = np.eye(n_labels)[labels]  # (N, L)

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights, biases = flat[: n_labels * width].reshape(n_labels, width), flat[n_labels * width :]
        logits = vectors @ weights.T + biases  # (N, L)
        logprobs = logits - logsumexp(logits, axis=1, keepdims=True)
        excess = np.exp(logprobs) - is_label
        gradient = np.concatenate([(excess.T @ vectors + weights).ravel(), excess.sum(axis=0)])
        return -float((logprobs * is_label).sum()) + 0.5 * float((weights**2).sum()), gradient

    flat = minimize(loss, np.zeros(n_labels * (width + 1)), jac=True, method="L-BFGS-B").x
    return flat[: n_labels * width].reshape(n_labels, width), flat[n_labels * width :]
