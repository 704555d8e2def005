"""Devices, dtypes, and weights: checks, loading options, placement, and randomization."""

import hashlib
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from kgharvest.engine.language_models.networks.heads import is_split, join_parts, network_of
from kgharvest.engine.language_models.networks.placement import (
    AUTO,
    FLOATS,
    QUANTIZED,
    check_placement,
    device_named,
    needs_gpu,
)
from kgharvest.engine.types import BrokenModel, EngineError, UnsupportedModel

QUANTIZED_DTYPE = torch.bfloat16  # for parts that are not quantized: embeddings, norms, activations
SPILLS = "dispatched on the CPU or the disk"  # transformers' error if quantized weights exceed the GPU memory


def dtype_named(name: str) -> torch.dtype:
    """Return the torch dtype. Raises EngineError unless `name` is in FLOATS."""
    if name not in FLOATS:
        raise EngineError(f"Unknown dtype {name!r}. Choose one of {', '.join(FLOATS)}.")
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
            f"Device {device!r} is not available. Use cpu, cuda on a machine with an NVIDIA GPU, or mps on a Mac with "
            "Apple silicon."
        ) from error


def check_dtype(dtype: str, device: str) -> None:
    """Raise EngineError unless this machine can load LMs in `dtype` on `device`."""
    check_placement(device, dtype)
    if dtype not in QUANTIZED:
        return
    if not torch.cuda.is_available():
        raise needs_gpu(dtype, device)
    for package in ("accelerate", "bitsandbytes"):
        check_installed(package, f"The dtype {dtype}")


def check_installed(package: str, what: str) -> None:
    """Raise EngineError unless the optional `package`, required by `what`, is installed."""
    if find_spec(package) is None:
        raise EngineError(
            f"{what} requires {package}, which is not installed. Run: pip install -r requirements-large.txt in a "
            'checkout, otherwise: pip install "kgharvest[large]"'
        )


def loading_options(device: str, dtype: str) -> dict[str, Any]:
    """Return options for `from_pretrained`. Raises EngineError if the device or dtype is unknown or unavailable."""
    check_device(device)
    check_dtype(dtype, device)
    if dtype in QUANTIZED:
        from transformers import BitsAndBytesConfig

        bits: dict[str, Any] = {"load_in_8bit": True}
        if dtype == "nf4":
            bits = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": QUANTIZED_DTYPE}
        quantization = BitsAndBytesConfig(**bits)
        device_map = device if device == AUTO else {"": device}
        return {"dtype": QUANTIZED_DTYPE, "quantization_config": quantization, "device_map": device_map}
    return {"dtype": dtype_named(dtype), **({"device_map": device} if device == AUTO else {})}


def from_pretrained(auto_class: Any, name: str, device: str, dtype: str, **which: Any) -> tuple[Any, dict[str, Any]]:
    """Return the model in `dtype` on `device`, frozen, and transformers' report on its weights.

    which: revision and config.

    Raises EngineError if the device or dtype is unavailable, BrokenModel if the model does not fit into memory, or
    UnsupportedModel if it cannot be split or its weight format is not supported.
    """
    options = loading_options(device, dtype)
    if device != AUTO:
        spilled = None
    else:  # folder for weights that do not fit into memory and are saved in another dtype; deleted with the model
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
            f"Model {name!r} is saved in a quantized format that requires additional packages. Use the original "
            "model. If it is too large, use the dtype int8 or nf4."
        ) from error
    except IndexError as error:  # raised by transformers 5.23 for the tied biases of BERT and RoBERTa
        if device != AUTO:
            raise
        raise UnsupportedModel(f"Model {name!r} cannot be split over devices. Choose one device.") from error
    model = model.eval().requires_grad_(False)
    if "device_map" not in options:
        model = move_to_device(model, device, name)
    elif is_split(model):
        join_parts(model, network_of(model))
        network_of(model).spilled_weights = spilled  # keeps the folder as long as the network exists
    return model, report


def move_to_device(model: Any, device: str, name: str) -> Any:
    """Move the model. Raises BrokenModel if it does not fit into memory."""
    try:
        return model.to(device)
    except torch.OutOfMemoryError as error:
        raise too_large(name, device) from error


def too_large(name: str, device: str, dtype: str = "float32") -> BrokenModel:
    smaller = "" if dtype in QUANTIZED else "bfloat16, int8, or nf4, "
    return BrokenModel(
        f"Model {name!r} in {dtype} does not fit into the memory of "
        f"{'the GPUs' if device == AUTO else device}. Use a smaller model, {smaller}the device {AUTO}, or cpu."
    )


# Weights


def randomize_weights(model: Any, seed: int) -> None:
    """Replace the weights of `model` with random values, as a control without knowledge.

    Matrices are drawn from N(0, 0.02^2), as in BERT. Biases are 0, and normalization weights are 1. Raises EngineError
    if the weights are read-only (quantized or on disk).
    """
    if any(weights.is_meta or not weights.is_floating_point() for weights in model.parameters()):
        raise EngineError(
            "Random weights (the control) cannot replace quantized weights or weights on disk. Use a float dtype and "
            "one device, or omit the control."
        )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() > 1:
                weights.copy_(torch.randn(weights.shape, generator=generator) * 0.02)
            else:
                weights.fill_(1.0 if name.endswith("weight") else 0.0)


def weights_fingerprint(folder: Path) -> str:
    """Return the start of the SHA-256 digest of the weights in a local folder or GGUF file.

    The digest identifies these weights, which have no commit on a hub.
    """
    digest = hashlib.sha256()
    for file in [folder] if folder.is_file() else sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        with file.open("rb") as weights:
            digest.update(hashlib.file_digest(weights, "sha256").digest())
    return f"sha256:{digest.hexdigest()[:12]}"
