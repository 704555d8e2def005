"""Devices: what this machine computes with, found without torch, which must not be loaded in the process that forks.

Names of devices that people give are checked for forms and the API here.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from django.core.exceptions import ValidationError

from kgharvest.engine.language_models.networks.placement import device_named
from kgharvest.engine.types import EngineError

NVIDIA_SMI = ("nvidia-smi", "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits")
MIG_LIST = ("nvidia-smi", "-L")  # names the parts of cards that are shared out (MIG) below each card
MIG = re.compile(r"^\s+(MIG [\w.+]*?(\d+)gb\S*)\s+Device\s+(\d+): \(UUID: (MIG-[^)]+)\)", re.MULTILINE)
PATIENCE_S = 30  # the driver wakes a card that sleeps


class Gpu(NamedTuple):
    """A card, or a part of one. index: as nvidia-smi counts; of a part, within its card."""

    index: str
    uuid: str
    name: str
    memory_mib: int


@cache
def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that this process may use, in the order of cuda:0, cuda:1, ...; none where there is no driver."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen and chosen.strip().startswith("MIG-"):
        # CUDA gives a process only the first part of a card, by its whole UUID (NVIDIA Multi-Instance GPU user guide,
        # "CUDA Device Enumeration"). The memory of a part is that of its profile, as 3g.20gb.
        parts = MIG.findall(_listed(MIG_LIST))
        first = chosen.partition(",")[0].strip()
        return tuple(Gpu(index, uuid, name, int(gib) << 10) for name, gib, index, uuid in parts if uuid == first)
    return visible(parse(_listed(NVIDIA_SMI)), chosen)


def _listed(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""


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


def validate_device(name: str) -> None:
    try:
        device_named(name)
    except EngineError as error:
        raise ValidationError(str(error)) from error
