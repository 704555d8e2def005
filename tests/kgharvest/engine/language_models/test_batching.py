"""Batching: deduplicated queries, equal lengths per batch, and smaller batches when memory runs out."""

from __future__ import annotations

import weakref

import pytest
import torch

from kgharvest.engine.language_models.base import Query
from kgharvest.engine.language_models.batching import evaluate
from kgharvest.engine.types import BrokenModel, Cancelled

CPU = torch.device("cpu")


class Network:
    """Fake network that returns (sum of ids, position) and records batch shapes. `room`: sequences per batch."""

    def __init__(self, room: int = 1000, error: Exception | None = None) -> None:
        self.room, self.error = room, error or torch.OutOfMemoryError("CUDA out of memory")
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        self.shapes.append(tuple(ids.shape))
        if len(ids) > self.room:
            raise self.error
        return torch.stack([ids.sum(dim=1), positions], dim=1).double()


def evaluate_on_cpu(queries, network, batch_size=256, tick=lambda: None):
    return evaluate(queries, network, CPU, batch_size, tick)


def query_of_length(length, position=0):
    return Query(tuple(range(length)), position)


def test_answers_follow_query_order():
    queries = [query_of_length(length, length - 1) for length in (5, 2, 4, 2, 3)]

    vectors = evaluate_on_cpu(queries, Network(), batch_size=2)

    assert vectors.tolist() == [[10, 4], [1, 1], [6, 3], [1, 1], [3, 2]]
    assert vectors.dtype == torch.float32


def test_equal_queries_are_evaluated_once():
    network = Network()

    evaluate_on_cpu([Query((1, 2), 0), Query((1, 2), 1), Query((1, 2), 0)], network)

    assert network.shapes == [(2, 2)]


def test_batch_contains_one_length_only():
    network = Network()

    evaluate_on_cpu([Query((i,) * length, 0) for i in range(3) for length in (2, 3)], network, batch_size=2)

    assert network.shapes == [(2, 2), (1, 2), (2, 3), (1, 3)]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_batches_are_halved_on_memory_errors_and_stay_small(error):
    network = Network(room=2, error=error)
    queries = [Query((i, 1), 0) for i in range(5)] + [Query((i, 1, 1), 0) for i in range(4)]

    vectors = evaluate_on_cpu(queries, network, batch_size=5)

    assert vectors[:, 0].tolist() == [1, 2, 3, 4, 5, 2, 3, 4, 5]
    assert network.shapes == [(5, 2), (2, 2), (2, 2), (1, 2), (2, 3), (2, 3)]


def test_tensors_of_failed_forward_are_freed_before_retry():
    activations = []

    def forward(ids, positions):
        assert all(reference() is None for reference in activations)
        activation = torch.zeros(len(ids), 1)
        activations.append(weakref.ref(activation))
        if len(ids) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return torch.ones(len(ids), 1)

    assert evaluate_on_cpu([Query((i,), 0) for i in range(4)], forward).tolist() == [[1]] * 4


def test_single_sequence_out_of_memory_is_reported():
    with pytest.raises(BrokenModel, match="even for one sequence"):
        evaluate_on_cpu([Query((1, 2), 0)], Network(room=0))


def test_unrelated_network_error_propagates():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        evaluate_on_cpu([Query((1,), 0)], Network(room=0, error=RuntimeError("shapes cannot be multiplied")))


def test_nan_is_reported():
    with pytest.raises(BrokenModel, match="NaN"):
        evaluate_on_cpu([Query((1,), 0)], lambda ids, positions: torch.full((1, 2), float("nan")))


def test_progress_is_reported_after_every_forward():
    ticks = []

    evaluate_on_cpu([Query((i,), 0) for i in range(5)], Network(), batch_size=2, tick=lambda: ticks.append(1))

    assert len(ticks) == 3


def test_cancellation_stops_between_forwards():
    network = Network()

    def cancel():
        raise Cancelled("The harvest was cancelled.")

    with pytest.raises(Cancelled):
        evaluate_on_cpu([Query((i,), 0) for i in range(5)], network, batch_size=2, tick=cancel)
    assert len(network.shapes) == 1
