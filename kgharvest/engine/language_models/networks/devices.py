"""Devices, dtypes and weights: check and name them, move a model, draw its weights anew."""

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


def randomize_weights(model: Any, seed: int) -> None:
    """Give `model` weights that know nothing, as before any training: the control of what an LM knows.

    Matrices from N(0, 0.02^2), as in BERT; biases zero, normalisations one.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() > 1:
                weights.copy_(torch.randn(weights.shape, generator=generator) * 0.02)
            else:
                weights.fill_(1.0 if name.endswith("weight") else 0.0)


def move_to_device(model: Any, device: str, name: str) -> Any:
    try:
        return model.to(device)
    except torch.OutOfMemoryError as error:
        raise BrokenModel(
            f"The model {name!r} does not fit into the memory of {device}; use a smaller one, bfloat16, or cpu."
        ) from error


def weights_fingerprint(folder: Path) -> str:
    """Return what names the weights in a local folder, which has no commit: the start of their SHA-256."""
    digest = hashlib.sha256()
    for file in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        with file.open("rb") as weights:
            digest.update(hashlib.file_digest(weights, "sha256").digest())
    return f"sha256:{digest.hexdigest()[:12]}"
