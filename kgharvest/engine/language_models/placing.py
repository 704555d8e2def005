"""Where an LM's weights go, in which numbers, and what names them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch

from kgharvest.engine.types import BrokenModel, EngineError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def dtype_named(name: str) -> torch.dtype:
    """Raises EngineError unless `name` is one of DTYPES."""
    if name not in DTYPES:
        raise EngineError(f"Unknown dtype {name!r}; choose one of {', '.join(DTYPES)}.")
    return DTYPES[name]


def check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: a torch without CUDA
        raise EngineError(f"The device {device!r} is not there; use cpu, or cuda on a machine with a GPU.") from error


def move(model: Any, device: str, name: str) -> Any:
    try:
        return model.to(device)
    except torch.OutOfMemoryError as error:
        raise BrokenModel(
            f"The model {name!r} does not fit into the memory of {device}; use a smaller one, bfloat16, or cpu."
        ) from error


def fingerprint(folder: Path) -> str:
    """Return what names the weights in a local folder, which has no commit: the start of their SHA-256."""
    digest = hashlib.sha256()
    for file in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        with file.open("rb") as weights:
            digest.update(hashlib.file_digest(weights, "sha256").digest())
    return f"sha256:{digest.hexdigest()[:12]}"
