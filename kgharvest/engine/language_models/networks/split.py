"""Models over several devices, as accelerate places them: where they are asked, and how parts of them are called."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch


def is_split(model: Any) -> bool:
    """Return whether the weights are on several devices, or come to one from memory or disk when they are needed."""
    devices = {weights.device for weights in model.parameters()}
    return len(devices) > 1 or torch.device("meta") in devices


def device_of(model: Any) -> torch.device:
    """Return where `model` is asked: where it is or, of one that is split, where its first weights are."""
    devices = (weights.device for weights in model.parameters())
    return next((device for device in devices if device.type != "meta"), torch.device("cpu"))


def join_parts(model: Any, network: Any) -> None:
    """Have the parts of a split model that are called alone take tensors from any device, and return them on its own.

    Inside of them accelerate moves what has to be moved. network: the part below the LM head.
    """
    halves = (model.get_encoder(), model.get_decoder()) if model.config.is_encoder_decoder else ()
    for part in {network, model.get_output_embeddings(), *halves}:
        part.register_forward_pre_hook(move_inputs, with_kwargs=True)
        part.register_forward_hook(partial(move_output, device=device_of(model)))


def move_inputs(part: Any, inputs: Any, named: Any) -> Any:
    from accelerate.utils import send_to_device

    return send_to_device((inputs, named), device_of(part))


def move_output(part: Any, inputs: Any, output: Any, device: torch.device) -> Any:
    from accelerate.utils import send_to_device

    return send_to_device(output, device)
