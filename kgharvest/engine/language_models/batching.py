"""Evaluate many queries in few forwards: each distinct query once, equal lengths together, memory permitting."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import torch

from kgharvest.engine.language_models.base import Query, Tick
from kgharvest.engine.types import BrokenModel

Forward = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # ids (B, T), positions (B,) -> vectors (B, d)


# A processor does this many floating-point operations well within a second, so that progress and cancellation, which
# come between two forwards, come soon enough. An accelerator gets as much at once as the batch size allows.
CPU_OPERATIONS_AT_ONCE = 30e9


def tokens_at_once(device: torch.device, n_parameters: int) -> int:
    """Return how many tokens a forward may hold, at two operations a parameter and token."""
    return max(1, int(CPU_OPERATIONS_AT_ONCE / (2 * n_parameters))) if device.type == "cpu" else sys.maxsize


def evaluate(
    queries: Sequence[Query],
    forward: Forward,
    device: torch.device,
    batch_size: int,
    tick: Tick,
    n_tokens: int = sys.maxsize,
) -> torch.Tensor:
    """Return (Q, d) float32, on `device`, in the order of `queries`; a forward holds at most `n_tokens`."""
    distinct = list(dict.fromkeys(queries))
    row_of = {query: row for row, query in enumerate(distinct)}
    vectors: torch.Tensor | None = None
    waiting = deque(same_length_batches(distinct, batch_size, n_tokens))
    while waiting:
        rows = waiting.popleft()
        batch = evaluate_batch([distinct[row] for row in rows], forward, device)
        if batch is None:
            waiting = halve([rows, *waiting])
            continue
        if vectors is None:
            vectors = torch.empty(len(distinct), batch.shape[1], device=device)
        vectors[rows] = batch
        tick()
    assert vectors is not None, "no queries"
    return vectors if len(distinct) == len(queries) else vectors[[row_of[query] for query in queries]]


def same_length_batches(queries: Sequence[Query], batch_size: int, n_tokens: int) -> Iterator[list[int]]:
    """Yield indices of queries, within the limits and of one length at a time, so that nothing is padded."""
    by_length = sorted(range(len(queries)), key=lambda index: len(queries[index].ids))
    for length, group in groupby(by_length, key=lambda index: len(queries[index].ids)):
        yield from chunks(list(group), min(batch_size, max(1, n_tokens // length)))


def chunks(rows: Sequence[int], size: int) -> Iterator[list[int]]:
    return (list(rows[start : start + size]) for start in range(0, len(rows), size))


def halve(batches: Sequence[list[int]]) -> deque[list[int]]:
    """Split `batches` so that none is longer than half of the first, for which memory ran out."""
    size = len(batches[0]) // 2
    if not size:
        raise BrokenModel("The LM does not fit into memory even one sequence at a time; use a smaller one.")
    return deque(chunk for batch in batches for chunk in chunks(batch, size))


def evaluate_batch(batch: Sequence[Query], forward: Forward, device: torch.device) -> torch.Tensor | None:
    """Return (B, d) float32, or None if memory runs out. Raises BrokenModel on NaN."""
    try:
        ids = torch.tensor([query.ids for query in batch], device=device)  # (B, T)
        positions = torch.tensor([query.position for query in batch], device=device)  # (B,)
        vectors = forward(ids, positions).float()
    except RuntimeError as error:
        # Leave this block before trying again: its traceback keeps the tensors of the failed forward alive.
        if is_out_of_memory(error):
            return None
        raise
    if torch.isnan(vectors).any():
        raise BrokenModel("The LM answers with NaN; its weights are damaged or overflow in this dtype (try float32).")
    return vectors


def in_halves(work: Callable[..., torch.Tensor], rows: torch.Tensor, others: torch.Tensor, *rest: int) -> torch.Tensor:
    """Return `work(rows, others, *rest)`, one output row for each row; in halves if memory runs out."""
    try:
        return work(rows, others, *rest)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    if len(rows) == 1:
        raise BrokenModel("The LM head does not fit into memory even for one position at a time; use a smaller LM.")
    half = len(rows) // 2
    parts = [(rows[:half], others[:half]), (rows[half:], others[half:])]
    return torch.cat([in_halves(work, part, other, *rest) for part, other in parts])


def is_out_of_memory(error: RuntimeError) -> bool:
    """CUDA has a class for it, mps and the CPU's allocator only a message."""
    is_said = any(words in str(error) for words in ("can't allocate memory", "backend out of memory"))
    return isinstance(error, torch.OutOfMemoryError) or is_said
