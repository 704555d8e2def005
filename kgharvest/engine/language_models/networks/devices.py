"""Devices, dtypes and weights: check them, say how weights are loaded, place a model, draw its weights anew."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from kgharvest.engine.language_models.networks.heads import network_of
from kgharvest.engine.language_models.networks.placement import (
    AUTO,
    FLOATS,
    QUANTIZED,
    check_placement,
    device_named,
    needs_gpu,
)
from kgharvest.engine.language_models.networks.split import is_split, join_parts
from kgharvest.engine.types import BrokenModel, EngineError, UnsupportedModel

QUANTIZED_DTYPE = torch.bfloat16  # of what is not quantized: embeddings, norms, activations
SPILLS = "dispatched on the CPU or the disk"  # what transformers says of quantized weights that the GPUs do not hold


def dtype_named(name: str) -> torch.dtype:
    """Raises EngineError unless `name` is one of FLOATS."""
    if name not in FLOATS:
        raise EngineError(f"Unknown dtype {name!r}; choose one of {', '.join(FLOATS)}.")
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def check_device(device: str) -> None:
    """Raise EngineError unless this machine has `device`."""
    if device_named(device) == AUTO:
        check_installed("accelerate", f"The device {AUTO}")
        return
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: a torch without CUDA
        raise EngineError(
            f"The device {device!r} is not there; use cpu, cuda on a machine with an NVIDIA GPU, or mps on a Mac with "
            "Apple silicon."
        ) from error


def check_dtype(dtype: str, device: str) -> None:
    """Raise EngineError unless LMs can be loaded in `dtype` on `device` here."""
    check_placement(device, dtype)
    if dtype not in QUANTIZED:
        return
    if not torch.cuda.is_available():
        raise needs_gpu(dtype, device)
    for package in ("accelerate", "bitsandbytes"):
        check_installed(package, f"The dtype {dtype}")


def check_installed(package: str, what: str) -> None:
    """Raise EngineError unless `package`, which `what` needs, is there: none of requirements.lock."""
    if find_spec(package) is None:
        raise EngineError(
            f"{what} needs {package}, which is not installed; install it: pip install -r requirements-large.txt"
        )


def loading_options(device: str, dtype: str) -> dict[str, Any]:
    """Return what `from_pretrained` is told of weights. Raises EngineError for what is unknown or not there."""
    check_device(device)
    check_dtype(dtype, device)
    where = {"device_map": device} if device == AUTO else {"device_map": {"": device}}
    if dtype in QUANTIZED:
        return {"dtype": QUANTIZED_DTYPE, "quantization_config": quantization(dtype), **where}
    return {"dtype": dtype_named(dtype), **(where if device == AUTO else {})}


def quantization(dtype: str) -> Any:
    from transformers import BitsAndBytesConfig

    bits: dict[str, Any] = {"load_in_8bit": True}
    if dtype == "nf4":
        bits = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": QUANTIZED_DTYPE}
    return BitsAndBytesConfig(**bits)  # type: ignore[no-untyped-call]


def from_pretrained(auto_class: Any, name: str, device: str, dtype: str, **which: Any) -> tuple[Any, dict[str, Any]]:
    """Return the model in `dtype` on `device`, frozen, and transformers' report on its weights.

    which: its revision and config. Raises EngineError for what is not there, BrokenModel if the model does not fit,
    UnsupportedModel if it cannot be split or is saved as nothing here reads it.
    """
    options = loading_options(device, dtype)
    if device != AUTO:
        spilled = None
    else:  # for weights that fit nowhere else and are not saved as they are computed with; it goes with the model
        spilled = TemporaryDirectory(prefix="kgharvest-lm-")
        options["offload_folder"] = spilled.name
    try:
        model, report = auto_class.from_pretrained(name, output_loading_info=True, **which, **options)
    except (torch.OutOfMemoryError, ValueError) as error:
        if isinstance(error, ValueError) and SPILLS not in str(error):
            raise
        raise too_large(name, device, dtype) from error
    except ImportError as error:
        raise UnsupportedModel(
            f"The model {name!r} is saved quantized, which needs more packages than kgharvest; name the model "
            "that it was made from, in int8 or nf4 if it is too large."
        ) from error
    except IndexError as error:  # transformers 5.23, of BERT's and RoBERTa's tied biases
        if device != AUTO:
            raise
        raise UnsupportedModel(f"The model {name!r} cannot be split over devices; name one of them.") from error
    model = model.eval().requires_grad_(False)
    if "device_map" not in options:
        model = move_to_device(model, device, name)
    elif is_split(model):
        join_parts(model, network_of(model))
        network_of(model).spilled_weights = spilled  # which every LM holds
    return model, report


def move_to_device(model: Any, device: str, name: str) -> Any:
    """Raises BrokenModel if the model does not fit there."""
    try:
        return model.to(device)
    except torch.OutOfMemoryError as error:
        raise too_large(name, device) from error


def too_large(name: str, device: str, dtype: str = "float32") -> BrokenModel:
    smaller = "" if dtype in QUANTIZED else "bfloat16, int8 or nf4, "
    return BrokenModel(
        f"The model {name!r} in {dtype} does not fit into the memory of "
        f"{'the GPUs' if device == AUTO else device}; use a smaller one, {smaller}the device {AUTO}, or cpu."
    )


# -- weights -----------------------------------------------------------------------------------------------------------


def randomize_weights(model: Any, seed: int) -> None:
    """Give `model` weights that know nothing, as before any training: the control of what an LM knows.

    Matrices from N(0, 0.02^2), as in BERT; biases zero, normalisations one. Raises EngineError where they are not to be
    written: quantized, or on the disk.
    """
    if any(weights.is_meta or not weights.is_floating_point() for weights in model.parameters()):
        raise EngineError(
            "Random weights, the control, are drawn neither quantized nor beyond the memory of the GPUs; use a float "
            "dtype and one device, or leave the control out."
        )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() > 1:
                weights.copy_(torch.randn(weights.shape, generator=generator) * 0.02)
            else:
                weights.fill_(1.0 if name.endswith("weight") else 0.0)


def weights_fingerprint(folder: Path) -> str:
    """Return what names the weights in a local folder, which has no commit: the start of their SHA-256."""
    digest = hashlib.sha256()
    for file in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        with file.open("rb") as weights:
            digest.update(hashlib.file_digest(weights, "sha256").digest())
    return f"sha256:{digest.hexdigest()[:12]}"
