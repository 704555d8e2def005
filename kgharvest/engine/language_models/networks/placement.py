"""Names of devices and dtypes for LM weights, shared by commands, queues, and the engine.

This module must not import torch. Availability is checked in kgharvest.engine.language_models.networks.devices.
"""

import re

from kgharvest.engine.types import EngineError

DEFAULT_DEVICE, DEFAULT_DTYPE = "cpu", "float32"

AUTO = "auto"  # fills the GPUs first, then memory, then disk
DEVICE = re.compile(rf"cpu|mps|cuda(:\d{{1,3}})?|{AUTO}")
DEVICE_HELP = f"cpu, cuda, cuda:N, mps, or {AUTO}: all GPUs, plus memory and disk for weights that do not fit"

FLOATS = ("float32", "bfloat16", "float16")
QUANTIZED = ("int8", "nf4")  # LLM.int8() (Dettmers et al. 2022) and QLoRA's 4 bits (Dettmers et al. 2023)
DTYPES = (*FLOATS, *QUANTIZED)
DTYPE_HELP = "number format of the LM's weights; int8 and nf4 (4 bits) require an NVIDIA GPU"


def device_named(name: str) -> str:
    """Return `name`. Raises EngineError unless it is a valid device name. Does not check availability."""
    if not DEVICE.fullmatch(name):
        raise EngineError(f"Unknown device {name!r:.40}. Choose one of {DEVICE_HELP}.")
    return name


def check_placement(device: str, dtype: str) -> None:
    """Raise EngineError unless the combination of `device` and `dtype` is valid on some machine."""
    device_named(device)
    if dtype not in DTYPES:
        raise EngineError(f"Unknown dtype {dtype!r:.40}. Choose one of {', '.join(DTYPES)}.")
    if dtype in QUANTIZED and not wants_gpu(device):
        raise needs_gpu(dtype, device)


def needs_gpu(dtype: str, device: str) -> EngineError:
    return EngineError(
        f"Weights in {dtype} require an NVIDIA GPU. Use the device cuda or {AUTO} on a machine with a GPU, or bfloat16 "
        f"on {device}."
    )


def wants_gpu(device: str) -> bool:
    """Return whether a job for `device` requires a machine with an NVIDIA GPU. False for MPS devices."""
    return device == AUTO or device.startswith("cuda")
