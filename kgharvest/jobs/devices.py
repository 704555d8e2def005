"""Devices of this machine. They are detected without torch, because torch must not be loaded in the process that forks.

Also contains the validator of device names for forms and the API.
"""

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
MIG_LIST = ("nvidia-smi", "-L")  # command that lists MIG instances below each GPU
MIG = re.compile(r"^\s+(MIG [\w.+]*?(\d+)gb\S*)\s+Device\s+(\d+): \(UUID: (MIG-[^)]+)\)", re.MULTILINE)
TIMEOUT_S = 30  # long, because the driver may have to wake the GPU


class Gpu(NamedTuple):
    """A GPU or a MIG instance. index: number of the GPU in nvidia-smi, or number of the MIG instance within its GPU."""

    index: str
    uuid: str
    name: str
    memory_mib: int


@cache
def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that this process can use, in the order cuda:0, cuda:1, ...

    The list is empty if there is no driver.
    """
    visible_devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible_devices and visible_devices.strip().startswith("MIG-"):
        # CUDA enumerates only the first MIG instance, which must be given by its full UUID (NVIDIA Multi-Instance GPU
        # user guide, "CUDA Device Enumeration"). The name of the profile, such as 3g.20gb, contains the memory size.
        instances = MIG.findall(_output(MIG_LIST))
        first = visible_devices.partition(",")[0].strip()
        return tuple(Gpu(index, uuid, name, int(gib) << 10) for name, gib, index, uuid in instances if uuid == first)
    return visible(parse(_output(NVIDIA_SMI)), visible_devices)


def _output(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""


def parse(output: str) -> tuple[Gpu, ...]:
    """Parse the output of nvidia-smi. If a memory size is not reported, it is 0."""
    rows = ([field.strip() for field in line.split(",")] for line in output.splitlines() if line.count(",") == 3)
    return tuple(Gpu(index, uuid, name, int(memory) if memory.isdecimal() else 0) for index, uuid, name, memory in rows)


def visible(gpus: tuple[Gpu, ...], visible_devices: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs listed in CUDA_VISIBLE_DEVICES, in the order of this list, up to the first invalid entry.

    An entry is an index or the prefix of a UUID; see "CUDA environment variables" in the CUDA programming guide.
    visible_devices: value of the variable, None if it is not set.
    """
    if visible_devices is None:
        return gpus
    selected: list[Gpu] = []
    for key in (word.strip() for word in visible_devices.split(",")):
        matches = [gpu for gpu in gpus if key == gpu.index or (key and gpu.uuid.startswith(key))]
        if len(matches) != 1 or matches[0] in selected:
            break
        selected += matches
    return tuple(selected)


def in_words() -> list[str]:
    """Return descriptions of the devices, such as "cuda:0, NVIDIA H100 80GB HBM3, 80 GiB" and "cpu, 16 cores"."""
    cards = [f"cuda:{n}, {gpu.name}, {round(gpu.memory_mib / 1024)} GiB" for n, gpu in enumerate(gpus())]
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [*cards, f"cpu, {n_cores} core{'s' * (n_cores != 1)}"]


def validate_device(name: str) -> None:
    try:
        device_named(name)
    except EngineError as error:
        raise ValidationError(str(error)) from error
