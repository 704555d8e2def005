"""LM heads, detected by testing: a projection to the vocabulary, and optional steps after it.

LM types differ in the steps after the projection. A short text is evaluated twice, the second time with enlarged logits
so that logit caps become visible. The first known form that reproduces the model's logits is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import linear

from kgharvest.engine.language_models.networks.split import device_of
from kgharvest.engine.types import UnsupportedModel

Layer = Callable[[torch.Tensor], torch.Tensor]

N_TOKENS = 4  # length of the test text
LARGE = 1000.0  # factor on normal logits
TOLERANCE = 0.01  # relative to the largest logit; allows for half-precision rounding


class Head(NamedTuple):
    """An LM head in two parts, so that it can run at one position and project averaged vectors.

    transform: (B, d) -> (B, d'), the head without its projection.
    projection: (B, d') -> (B, V).
    is_affine: True if the projection of a weighted mean equals the weighted mean of projections.
    """

    transform: Layer
    projection: Layer
    is_affine: bool = True


class Projection(nn.Module):
    """Output embeddings followed by the model's operations on their logits."""

    def __init__(self, embeddings: nn.Module, after: Layer) -> None:
        super().__init__()
        self.embeddings, self.after = embeddings, after

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return self.after(self.embeddings(vectors))


class WordProjection(nn.Module):
    """Projection to the vocabulary by the word embeddings."""

    def __init__(self, words: nn.Embedding, bias: torch.Tensor) -> None:
        super().__init__()
        self.weight, self.bias = words.weight, bias

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return linear(vectors, self.weight, self.bias)


class Hidden(NamedTuple):
    last_hidden_state: torch.Tensor  # (B, T, d)


# -- steps after the last hidden state ---------------------------------------------------------------------------------


@torch.inference_mode()
def head_on_hidden(model: Any, read: Callable[[torch.Tensor], torch.Tensor], name: str) -> Head:
    """Return the head of a model with output embeddings that project its last hidden state.

    read: ids (B, T) -> (B, T, d), the last hidden state. Raises UnsupportedModel unless the logits are those
        projections, possibly scaled, shifted, or capped.
    """
    ids = trial_ids(model)
    projection = model.get_output_embeddings()
    plain = Trial(projection(read(ids)), model_logits(model, ids))
    with enlarged(projection):
        large = Trial(projection(read(ids)), model_logits(model, ids))
    for after, is_affine in what_may_follow(model, plain):
        if plain.is_explained_by(after) and large.is_explained_by(after):
            return Head(nn.Identity(), Projection(projection, after), is_affine)
    raise UnsupportedModel(
        f"The logits of {name!r} cannot be derived from its last hidden state in a supported way. Use another LM."
    )


class Trial(NamedTuple):
    """Projection of a text by the output embeddings, and the model's logits; both (B, T, V)."""

    projected: torch.Tensor
    logits: torch.Tensor

    def is_explained_by(self, after: Layer) -> bool:
        return is_close(after(self.projected).float(), self.logits.float())

    @property
    def scale(self) -> float:
        """Least-squares factor that maps `projected` to the logits."""
        projected, logits = self.projected.cpu().double(), self.logits.cpu().double()
        return float((projected * logits).sum() / projected.square().sum())


def what_may_follow(model: Any, trial: Trial) -> Iterator[tuple[Layer, bool]]:
    """Yield possible steps after the projection, and whether each is affine."""
    yield nn.Identity(), True
    bias = getattr(model, "final_logits_bias", None)  # BART, mBART, PEGASUS
    if bias is not None:
        yield lambda logits: logits + bias.to(logits.device), True
    cap = getattr(text_config(model.config), "final_logit_softcapping", None)  # Gemma 2 and later
    if cap:
        yield lambda logits: cap * torch.tanh(logits / cap), False
    scale = trial.scale  # Cohere, Granite, MiniCPM, T5 with tied embeddings
    yield lambda logits: logits * scale, True


@contextmanager
def enlarged(projection: nn.Module) -> Iterator[None]:
    handle = projection.register_forward_hook(lambda module, inputs, logits: LARGE * logits)
    try:
        yield
    finally:
        handle.remove()


# -- heads between the last hidden state and the projection ------------------------------------------------------------


class Headless(nn.Module):
    """A model without its projection to the vocabulary. It returns the input of that projection."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @property
    def config(self) -> Any:
        return self.model.config

    def get_input_embeddings(self) -> Any:
        return self.model.get_input_embeddings()

    def forward(self, **inputs: Any) -> Hidden:
        return Hidden(self.model(**inputs).logits)


@torch.inference_mode()
def without_projection(model: Any, name: str) -> tuple[Headless, Head]:
    """Remove the output embeddings from `model`. Return the remaining network and the head.

    Raises UnsupportedModel if they are not the model's last step.
    """
    ids = trial_ids(model)
    logits = model_logits(model, ids)
    projection = model.get_output_embeddings()
    path = next((path for path, module in model.named_modules() if module is projection), None)
    if path is not None:
        parent, _, attribute = path.rpartition(".")
        setattr(model.get_submodule(parent), attribute, nn.Identity())
        vectors = model_logits(model, ids)
        if vectors.shape[-1] == projection.weight.shape[-1] and is_close(projection(vectors).float(), logits.float()):
            return Headless(model), Head(nn.Identity(), projection)
    raise UnsupportedModel(
        f"The logits of {name!r} are not the output of its output embeddings. Use a masked LM of another type."
    )


# -- tests -------------------------------------------------------------------------------------------------------------


def trial_ids(model: Any) -> torch.Tensor:
    return torch.arange(N_TOKENS, device=device_of(model))[None]


def model_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Return (B, T, V). In an encoder-decoder, the decoder also reads `ids`."""
    decoder_inputs = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    logits: torch.Tensor = model(input_ids=ids, **decoder_inputs).logits
    return logits


def is_close(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool((actual - expected).abs().max() <= TOLERANCE * expected.abs().max())


def text_config(config: Any) -> Any:
    """Return the LM part of a config. Multimodal models have other parts as well."""
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def network_of(model: Any) -> Any:
    """Return the part of a model below its LM head."""
    network = model.base_model
    return network if network is not model else getattr(model, "model", model)
