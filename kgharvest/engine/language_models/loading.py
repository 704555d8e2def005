"""Load an LM by hub id or local folder and hand it to its family."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from kgharvest.engine.language_models import causal, infilling, masked
from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.types import EngineError, ModelNotFound, UnsupportedModel

FAMILIES: list[tuple[Collection[str], Any, Callable[..., LanguageModel]]] = [
    (masked.HEADS, AutoModelForMaskedLM, masked.MaskedLM),
    (infilling.MODEL_TYPES, AutoModelForSeq2SeqLM, infilling.InfillingLM),
    (causal.MODEL_TYPES, AutoModelForCausalLM, causal.CausalLM),
]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load(name: str, revision: str | None = None, device: str = "cpu", dtype: str = "float32") -> LanguageModel:
    """Return the LM `name` (a hub id or a local folder) at `revision`, ready to be asked.

    Raises ModelNotFound, UnsupportedModel, or EngineError for a device or dtype that is not there.
    """
    check_device(device)
    if dtype not in DTYPES:
        raise EngineError(f"Unknown dtype {dtype!r}; choose one of {', '.join(DTYPES)}.")
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    config = load_config(name, revision)
    auto_class, family = family_of(config, name)
    tokenizer = AutoTokenizer.from_pretrained(name, revision=revision)
    model, report = auto_class.from_pretrained(name, revision=revision, dtype=DTYPES[dtype], output_loading_info=True)
    check_complete(name, report)
    return family(model.eval().requires_grad_(False).to(device), tokenizer, name, recorded_revision(config, revision))


def load_config(name: str, revision: str | None) -> Any:
    if Path(name).is_dir() and not (Path(name) / "config.json").exists():
        raise ModelNotFound(
            f"The folder {name} holds no model (no config.json); name a folder made by save_pretrained."
        )
    try:
        return AutoConfig.from_pretrained(name, revision=revision)
    except (OSError, ValueError) as error:
        raise ModelNotFound(
            f"The model {name!r} is neither a local folder nor a model that the hub gives out here; "
            "check the name and the network, or download it and name its folder."
        ) from error


def family_of(config: Any, name: str) -> tuple[Any, Callable[..., LanguageModel]]:
    """Return the transformers class and our family for a model type. Raises UnsupportedModel."""
    for model_types, auto_class, family in FAMILIES:
        if config.model_type in model_types:
            return auto_class, family
    supported = ", ".join(model_type for model_types, _, _ in FAMILIES for model_type in model_types)
    raise UnsupportedModel(
        f"The model {name!r} is of type {config.model_type}, which cannot fill in blanks here; use one of {supported}."
    )


def check_device(device: str) -> None:
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise EngineError(f"The device {device} is not there: this machine shows no CUDA device; use --device cpu.")


def check_complete(name: str, report: dict[str, Any]) -> None:
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise UnsupportedModel(
            f"The model {name!r} lacks {len(missing)} of its weights (first: {missing[0]}), probably its LM head; "
            "use the checkpoint that was pretrained to fill in blanks."
        )


def recorded_revision(config: Any, revision: str | None) -> str | None:
    """Return the hub's commit where there is one, so that a harvest names exactly what it asked."""
    return getattr(config, "_commit_hash", None) or revision
