"""Number of torch threads for an LM.

Threads of one operation wait for each other by spinning. If another program occupies a core, each of the many short
operations of a small LM waits for the operating system: a harvest with the embedded LM took 9 times the CPU time and 11
times the wall-clock time with two threads on two busy cores. On idle cores, the second thread saves a third of the time
(`python benches/threads.py`).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.language_models.pretrained import PretrainedLM

SMALL = 10_000_000  # weights used per token; larger LMs have operations of several milliseconds


def thread_count(lm: LanguageModel, default: int) -> int:
    """Return the number of threads for operations of `lm`: 1 for small LMs on a CPU, otherwise `default`."""
    is_small = isinstance(lm, PretrainedLM) and lm.device.type == "cpu" and lm.weights_per_token <= SMALL
    return 1 if is_small else default


@contextmanager
def suitable_threads(lm: LanguageModel) -> Iterator[None]:
    """Set torch to `thread_count` threads, and restore the caller's number at the end."""
    default = torch.get_num_threads()
    torch.set_num_threads(thread_count(lm, default))
    try:
        yield
    finally:
        torch.set_num_threads(default)
