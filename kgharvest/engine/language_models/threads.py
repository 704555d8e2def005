"""Number of torch threads for an LM or a paraphraser.

Threads of one operation wait for each other by spinning. If another program occupies a core, each of the many short
operations of a small LM waits for the operating system: a harvest with the embedded LM took 9 times the CPU time and 11
times the wall-clock time with two threads on two busy cores. On idle cores, the second thread saves a third of the time
(`python benches/threads.py`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import torch

SMALL = 10_000_000  # weights used per token; larger LMs have operations of several milliseconds
_default: int | None = None  # torch's number of threads before this module changed it


@runtime_checkable
class LocalModel(Protocol):
    """A model that runs in this process."""

    device: torch.device
    weights_per_token: int


def set_suitable_threads(model: object) -> None:
    """Set torch to one thread for small models on a CPU, otherwise to its number before the first change."""
    global _default
    _default = _default or torch.get_num_threads()
    is_small = isinstance(model, LocalModel) and model.device.type == "cpu" and model.weights_per_token <= SMALL
    torch.set_num_threads(1 if is_small else _default)


@contextmanager
def suitable_threads(model: object) -> Iterator[None]:
    """Set torch to the number of threads for `model`, and restore the caller's number at the end.

    Inside of another model's context, the number before the outer context is the default.
    """
    global _default
    before = _default, torch.get_num_threads()
    set_suitable_threads(model)
    try:
        yield
    finally:
        _default, n_threads = before
        torch.set_num_threads(n_threads)
