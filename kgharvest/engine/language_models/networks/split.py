"""Models split over several devices by accelerate: input device, and calls to parts of the model."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch


def is_split(model: Any) -> bool:
    """Return whether the weights are on several devices, or are moved to a device on demand."""
    devices = {weights.device for weights in model.parameters()}
    return len(devices) > 1 or torch.device("meta") in devices


def device_of(model: Any) -> torch.device:
    """Return the input device of `model`: its device or, for a split model, the device of its first weights."""
    devices = (weights.device for weights in model.parameters())
    return next((device for device in devices if device.type != "meta"), torch.device("cpu"))


def join_parts(model: Any, network: Any) -> None:
    """Let separately called parts of a split model accept tensors from any device, with output on the input device.

    Within a part, accelerate moves the tensors. network: the part below the LM head.
    """
    halves = (model.get_encoder(), model.get_decoder()) if model.config.is_encoder_decoder else ()
    for part in {network, model.get_output_embeddings(), *halves}:
        part.register_forward_pre_hook(move_inputs, with_kwargs=True)
        part.register_forward_hook(partial(move_output, device=device_of(model)))


def move_inputs(part: Any, inputs: Any, kwargs: Any) -> Any:
    from accelerate.utils import send_to_device

    return send_to_device((inputs, kwargs), device_of(part))


def move_output(part: Any, inputs: Any, output: Any, device: torch.device) -> Any:
    from accelerate.utils import send_to_device

    return send_to_device(output, device)
