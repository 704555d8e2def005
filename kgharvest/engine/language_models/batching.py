"""Batched evaluation of distinct queries, grouped by length. Batches become smaller if memory runs out."""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import torch

from kgharvest.engine.language_models.base import Query, Tick
from kgharvest.engine.types import BrokenModel

Forward = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # ids (B, T), positions (B,) -> vectors (B, d)

# A CPU performs this many floating-point operations in well under a second. This limits the delay of progress reports
# and cancellation, which happen between forward passes. On accelerators, only the batch size limits a forward pass.
CPU_OPERATIONS_AT_ONCE = 30e9


def tokens_at_once(device: torch.device, n_parameters: int) -> int:
    """Return the maximum number of tokens per forward pass, at two operations per parameter and token."""
    return max(1, int(CPU_OPERATIONS_AT_ONCE / (2 * n_parameters))) if device.type == "cpu" else sys.maxsize


def evaluate(
    queries: Sequence[Query],
    forward: Forward,
    device: torch.device,
    batch_size: int,
    tick: Tick,
    n_tokens: int = sys.maxsize,
) -> torch.Tensor:
    """Return (Q, d) float32, on `device`, in the order of `queries`. A forward pass has at most `n_tokens` tokens."""
    distinct = list(dict.fromkeys(queries))
    row_of = {query: row for row, query in enumerate(distinct)}
    vectors: torch.Tensor | None = None
    batches = deque(same_length_batches(distinct, batch_size, n_tokens))
    while batches:
        rows = batches.popleft()
        batch = evaluate_batch([distinct[row] for row in rows], forward, device)
        if batch is None:
            batches = halve([rows, *batches])
            continue
        if vectors is None:
            vectors = torch.empty(len(distinct), batch.shape[1], device=device)
        vectors[rows] = batch
        tick()
    assert vectors is not None, "no queries"
    return vectors if len(distinct) == len(queries) else vectors[[row_of[query] for query in queries]]


def same_length_batches(queries: Sequence[Query], batch_size: int, n_tokens: int) -> Iterator[list[int]]:
    """Yield batches of query indices within the limits. A batch has queries of one length, so it needs no padding."""
    by_length = sorted(range(len(queries)), key=lambda index: len(queries[index].ids))
    for length, group in groupby(by_length, key=lambda index: len(queries[index].ids)):
        yield from chunks(list(group), min(batch_size, max(1, n_tokens // length)))


def chunks(rows: Sequence[int], size: int) -> Iterator[list[int]]:
    return (list(rows[start : start + size]) for start in range(0, len(rows), size))


def halve(batches: Sequence[list[int]]) -> deque[list[int]]:
    """Split `batches` so that none is longer than half of the first batch, which exhausted the memory."""
    size = len(batches[0]) // 2
    if not size:
        raise BrokenModel("The LM does not fit into memory even for one sequence. Use a smaller LM.")
    return deque(chunk for batch in batches for chunk in chunks(batch, size))


def evaluate_batch(batch: Sequence[Query], forward: Forward, device: torch.device) -> torch.Tensor | None:
    """Return (B, d) float32, or None if memory is exhausted. Raises BrokenModel on NaN."""
    try:
        ids = torch.tensor([query.ids for query in batch], device=device)  # (B, T)
        positions = torch.tensor([query.position for query in batch], device=device)  # (B,)
        vectors = forward(ids, positions).float()
    except RuntimeError as error:
        # Leave this block before the retry: the traceback keeps the tensors of the failed forward pass alive.
        if is_out_of_memory(error):
            return None
        raise
    if torch.isnan(vectors).any():
        raise BrokenModel("The LM returns NaN. Its weights are damaged or overflow in this dtype (try float32).")
    return vectors


def in_halves(work: Callable[..., torch.Tensor], rows: torch.Tensor, others: torch.Tensor, *rest: int) -> torch.Tensor:
    """Return `work(rows, others, *rest)`, one output row per input row. Splits the rows if memory is exhausted."""
    try:
        return work(rows, others, *rest)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    if len(rows) == 1:
        raise BrokenModel("The LM head does not fit into memory even for one position. Use a smaller LM.")
    half = len(rows) // 2
    parts = [(rows[:half], others[:half]), (rows[half:], others[half:])]
    return torch.cat([in_halves(work, part, other, *rest) for part, other in parts])


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether `error` reports exhausted memory. MPS and the CPU allocator raise a plain RuntimeError."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return any(words in str(error) for words in ("can't allocate memory", "backend out of memory"))
