"""Where an LM's weights are and in which number format, by name: for commands, queues and the engine.

Imports no torch. What this machine has of them, kgharvest.engine.language_models.networks.devices tells.
"""

from __future__ import annotations

import re

from kgharvest.engine.types import EngineError

DEFAULT_DEVICE, DEFAULT_DTYPE = "cpu", "float32"

AUTO = "auto"  # as much as fits on the GPUs, then in memory, then on the disk
DEVICE = re.compile(rf"cpu|mps|cuda(:\d{{1,3}})?|{AUTO}")
DEVICE_HELP = f"cpu, cuda, cuda:N, mps, or {AUTO}: all GPUs, and memory and disk for what they do not hold"

FLOATS = ("float32", "bfloat16", "float16")
QUANTIZED = ("int8", "nf4")  # LLM.int8() (Dettmers et al. 2022) and QLoRA's 4 bits (Dettmers et al. 2023)
DTYPES = (*FLOATS, *QUANTIZED)
DTYPE_HELP = "number format of the LM's weights; int8 and nf4 (4 bits) on an NVIDIA GPU"


def device_named(name: str) -> str:
    """Raises EngineError unless `name` names a device, which this machine need not have."""
    if not DEVICE.fullmatch(name):
        raise EngineError(f"There is no device {name!r:.40}; name one of {DEVICE_HELP}.")
    return name


def check_placement(device: str, dtype: str) -> None:
    """Raise EngineError unless some machine has LMs in `dtype` on `device`."""
    device_named(device)
    if dtype not in DTYPES:
        raise EngineError(f"Unknown dtype {dtype!r:.40}; choose one of {', '.join(DTYPES)}.")
    if dtype in QUANTIZED and not wants_gpu(device):
        raise needs_gpu(dtype, device)


def needs_gpu(dtype: str, device: str) -> EngineError:
    return EngineError(
        f"Weights in {dtype} need an NVIDIA GPU; use the device cuda or {AUTO} on a machine that has one, or bfloat16 "
        f"on {device}."
    )


def wants_gpu(device: str) -> bool:
    """Return whether a job for `device` is for a machine with an NVIDIA GPU. Nothing tells machines with mps apart."""
    return device == AUTO or device.startswith("cuda")
