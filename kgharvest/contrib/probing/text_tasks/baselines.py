"""Trained text classifiers: linear probe, fine-tuned LM, and BiLSTM (Shin et al. 2020, Tables 1 and 2)."""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, log_softmax

from kgharvest.contrib.probing.text_tasks.classification import EncodedText, fit_logistic
from kgharvest.contrib.probing.text_tasks.text_template import cut_to_fit
from kgharvest.engine.language_models.base import Query, TokenIds
from kgharvest.engine.language_models.batching import same_length_batches
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.prompt_learning.training import TrainingParams, train_best

LSTM_WIDTH, LSTM_RATE = 150, 1e-3  # size of each direction; learning rate
TEXTS_AT_ONCE = 256

Reader = Callable[[torch.Tensor], torch.Tensor]  # token ids (B, T) -> (B, d)
Logits = Callable[[torch.Tensor], torch.Tensor]  # token ids (B, T) -> (B, L)


class TrainedClassifier(NamedTuple):
    """logprobs: returns (N, L) for N texts, normalized over the labels. n_parameters: number of trained numbers."""

    logprobs: Callable[[Sequence[EncodedText]], torch.Tensor]
    n_parameters: int


def framed(lm: MaskedLM, parts: Sequence[TokenIds]) -> TokenIds:
    """Return the tokens of one or several texts, each followed by the LM's closing special tokens."""
    prefix, suffix = lm.tokens.prefix, lm.tokens.suffix
    parts = cut_to_fit(parts, lm.max_tokens - len(prefix) - len(parts) * len(suffix))
    return prefix + tuple(token for part in parts for token in part + suffix)


def batches_of(lm: MaskedLM, texts: Sequence[EncodedText], size: int) -> Iterator[tuple[list[int], torch.Tensor]]:
    """Yield row numbers and token ids (B, T) of texts with equal lengths."""
    queries = [Query(framed(lm, text.parts), 0) for text in texts]
    for rows in same_length_batches(queries, size, 1 << 30):
        yield rows, torch.tensor([queries[row].ids for row in rows], device=lm.device)


@torch.no_grad()
def outputs(lm: MaskedLM, read: Reader, texts: Sequence[EncodedText]) -> torch.Tensor:
    """Return (N, d), the outputs of `read` in the order of `texts`."""
    batches = list(batches_of(lm, texts, TEXTS_AT_ONCE))
    rows = torch.tensor([row for rows, _ in batches for row in rows])
    return torch.cat([read(ids).float().cpu() for _, ids in batches])[rows.argsort()]


def linear_probe(
    lm: MaskedLM, train: Sequence[EncodedText], dev: Sequence[EncodedText], params: TrainingParams
) -> TrainedClassifier:
    """Fit a logistic regression on the average of the LM's output vectors of all tokens. dev, params: unused."""

    def read(ids: torch.Tensor) -> torch.Tensor:
        return lm.hidden_everywhere(lm.word_embeddings[ids]).float().mean(dim=1)

    labels = np.array([text.label for text in train])
    weights, biases = fit_logistic(outputs(lm, read, train).double().numpy(), labels)

    def logprobs(texts: Sequence[EncodedText]) -> torch.Tensor:
        logits = outputs(lm, read, texts).double().numpy() @ weights.T + biases
        return log_softmax(torch.from_numpy(logits), dim=1)

    return TrainedClassifier(logprobs, weights.size + biases.size)


def fine_tuned(
    lm: MaskedLM, train: Sequence[EncodedText], dev: Sequence[EncodedText], params: TrainingParams
) -> TrainedClassifier:
    """Train a copy of the LM and a linear layer on the output vector of the first token."""
    tuned = lm.trainable_copy()

    def read(ids: torch.Tensor) -> torch.Tensor:
        return tuned.hidden_everywhere(tuned.word_embeddings[ids])[:, 0]

    return train_reader(lm, read, lm.hidden_size, tuned.parameters(), (train, dev), params)


def bilstm(
    lm: MaskedLM, train: Sequence[EncodedText], dev: Sequence[EncodedText], params: TrainingParams
) -> TrainedClassifier:
    """Train a bidirectional LSTM on the LM's word embeddings, which do not change, with a maximum over time."""
    words = lm.word_embeddings.float().detach()
    with torch.random.fork_rng():
        torch.manual_seed(params.seed)
        lstm = nn.LSTM(words.shape[1], LSTM_WIDTH, batch_first=True, bidirectional=True).to(lm.device)

    def read(ids: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = lstm(words[ids])[0].amax(dim=1)
        return output

    params = TrainingParams(LSTM_RATE, params.batch_size, params.epochs, params.seed)
    return train_reader(lm, read, 2 * LSTM_WIDTH, list(lstm.parameters()), (train, dev), params)


def train_reader(
    lm: MaskedLM,
    read: Reader,
    width: int,
    weights: Sequence[nn.Parameter],
    parts: tuple[Sequence[EncodedText], Sequence[EncodedText]],
    params: TrainingParams,
) -> TrainedClassifier:
    """Train `weights`, on which `read` depends, and a linear layer on its outputs. Keep the best epoch on dev.

    parts: train and dev.
    """
    train, dev = parts
    n_labels = 1 + max(text.label for text in train)
    head = nn.Linear(width, n_labels, device=lm.device)
    for zero in head.parameters():
        nn.init.zeros_(zero)
    weights = [*weights, *head.parameters()]

    def epoch(rng: Random) -> list[tuple[list[int], torch.Tensor]]:
        return rng.sample(batches := list(batches_of(lm, train, params.batch_size)), len(batches))

    def loss(batch: tuple[list[int], torch.Tensor]) -> torch.Tensor:
        labels = torch.tensor([train[row].label for row in batch[0]], device=lm.device)
        return cross_entropy(head(read(batch[1]).float()), labels)

    def logprobs(texts: Sequence[EncodedText]) -> torch.Tensor:
        return log_softmax(outputs(lm, lambda ids: head(read(ids).float()), texts), dim=1)

    def accuracy() -> float:
        labels = torch.tensor([text.label for text in dev])
        return (logprobs(dev).argmax(1) == labels).float().mean().item()

    train_best(weights, epoch, loss, accuracy, params)
    return TrainedClassifier(logprobs, sum(weight.numel() for weight in weights))


BASELINES = {"linear-probe": linear_probe, "fine-tuned": fine_tuned, "bilstm": bilstm}
