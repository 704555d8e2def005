"""What this machine computes with, found without torch, which must not be loaded in the process that forks."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from typing import NamedTuple

NVIDIA_SMI = ("nvidia-smi", "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits")
PATIENCE_S = 30  # the driver wakes a card that sleeps


class Gpu(NamedTuple):
    """index: as nvidia-smi counts."""

    index: str
    uuid: str
    name: str
    memory_mib: int


@cache
def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that this process may use, in the order of cuda:0, cuda:1, ...; none where there is no driver."""
    try:
        listed = subprocess.run(NVIDIA_SMI, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ()
    return visible(parse(listed), os.environ.get("CUDA_VISIBLE_DEVICES"))


def parse(listed: str) -> tuple[Gpu, ...]:
    """Return the GPUs of nvidia-smi's lines; a memory that it does not tell is 0."""
    rows = ([field.strip() for field in line.split(",")] for line in listed.splitlines() if line.count(",") == 3)
    return tuple(Gpu(index, uuid, name, int(memory) if memory.isdecimal() else 0) for index, uuid, name, memory in rows)


def visible(found: tuple[Gpu, ...], chosen: str | None) -> tuple[Gpu, ...]:
    """Return those that CUDA_VISIBLE_DEVICES leaves, in its order: indices or (beginnings of) UUIDs, up to a wrong one.

    CUDA programming guide, "CUDA environment variables". chosen: None if the variable is not set.
    """
    if chosen is None:
        return found
    kept: list[Gpu] = []
    for wanted in (word.strip() for word in chosen.split(",")):
        fitting = [gpu for gpu in found if wanted == gpu.index or (wanted and gpu.uuid.startswith(wanted))]
        if len(fitting) != 1 or fitting[0] in kept:
            break
        kept += fitting
    return tuple(kept)


def in_words() -> list[str]:
    """Return each device as people read it: "cuda:0, NVIDIA H100 80GB HBM3, 80 GiB", "cpu, 16 cores"."""
    cards = [f"cuda:{n}, {gpu.name}, {round(gpu.memory_mib / 1024)} GiB" for n, gpu in enumerate(gpus())]
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [*cards, f"cpu, {n_cores} core{'s' * (n_cores != 1)}"]
