"""Networks of LMs: heads, layers evaluated at a single position, and models split over devices.

A head is a projection to the vocabulary, optionally followed by another step, which depends on the LM type. To find
this step, a short text is evaluated twice, the second time with enlarged logits so that logit caps become visible. The
first known step that reproduces the model's logits is used.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from kgharvest.engine.types import UnsupportedModel

Layer = Callable[[torch.Tensor], torch.Tensor]

N_TOKENS = 4  # length of the test text
LARGE = 1000.0  # factor that enlarges normal logits
TOLERANCE = 0.01  # relative to the largest logit; allows for half-precision rounding


class Head(NamedTuple):
    """An LM head in two parts, so that it can be evaluated at one position and can project averaged vectors.

    transform: (B, d) -> (B, d'), the head without its projection.
    projection: (B, d') -> (B, V).
    is_affine: True if the projection of a weighted mean equals the weighted mean of projections.
    """

    transform: Layer
    projection: Layer
    is_affine: bool = True


class Projection(nn.Module):
    """Output embeddings followed by the operations that the model applies to the logits."""

    def __init__(self, embeddings: nn.Module, after: Layer) -> None:
        super().__init__()
        self.embeddings, self.after = embeddings, after

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return self.after(self.embeddings(vectors))


class Hidden(NamedTuple):
    last_hidden_state: torch.Tensor  # (B, T, d)


# Steps after the last hidden state


@torch.inference_mode()
def head_on_hidden(model: Any, read: Callable[[torch.Tensor], torch.Tensor], name: str) -> Head:
    """Return the head of a model whose output embeddings project its last hidden state.

    read: ids (B, T) -> (B, T, d), the last hidden state. Raises UnsupportedModel unless the logits are the projection
        of the last hidden state, possibly scaled, shifted, or capped.
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
    """Projection (B, T, V) of a test text by the output embeddings, and the model's logits (B, T, V) for this text."""

    projected: torch.Tensor
    logits: torch.Tensor

    def is_explained_by(self, after: Layer) -> bool:
        return is_close(after(self.projected).float(), self.logits.float())


def what_may_follow(model: Any, trial: Trial) -> Iterator[tuple[Layer, bool]]:
    """Yield possible steps after the projection, and whether each is affine."""
    yield nn.Identity(), True
    bias = getattr(model, "final_logits_bias", None)  # BART, mBART, PEGASUS
    if bias is not None:
        yield lambda logits: logits + bias.to(logits.device), True
    cap = getattr(text_config(model.config), "final_logit_softcapping", None)  # Gemma 2 and later
    if cap:
        yield lambda logits: cap * torch.tanh(logits / cap), False
    projected, expected = trial.projected.cpu().double(), trial.logits.cpu().double()
    scale = float((projected * expected).sum() / projected.square().sum())  # least squares
    # Cohere, Granite, MiniCPM, T5 with tied embeddings
    yield lambda logits: logits * scale, True


@contextmanager
def enlarged(projection: nn.Module) -> Iterator[None]:
    handle = projection.register_forward_hook(lambda module, inputs, logits: LARGE * logits)
    try:
        yield
    finally:
        handle.remove()


# Heads between the last hidden state and the projection


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

    Raises UnsupportedModel if the output embeddings are not the model's last step.
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


# Tests


def trial_ids(model: Any) -> torch.Tensor:
    return torch.arange(N_TOKENS, device=device_of(model))[None]


def model_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Return the logits (B, T, V) for `ids` (B, T). In an encoder-decoder, the decoder also reads `ids`."""
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


# Architectures: heads of supported masked LMs, and evaluation of their last layer at the queried position only. In
# small LMs, this saves half of the computation. It is supported for post-norm encoders. Other architectures evaluate
# their last layer at all positions.


# (layer, hidden (B, T, d), queried (B, 1, d)) -> (B, 1, d): the layer's output at `queried`, attending to `hidden`.
LayerFunction = Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]


# Transforms are modules, so that deepcopy copies their weights.


def bert_head(model: Any) -> Head:
    return Head(model.cls.predictions.transform, model.cls.predictions.decoder)


def roberta_head(model: Any) -> Head:
    head = model.lm_head
    return Head(nn.Sequential(head.dense, nn.GELU(), head.layer_norm), head.decoder)


def distilbert_head(model: Any) -> Head:
    transform = nn.Sequential(model.vocab_transform, model.activation, model.vocab_layer_norm)
    return Head(transform, model.vocab_projector)


def albert_head(model: Any) -> Head:
    head = model.predictions
    return Head(nn.Sequential(head.dense, head.activation, head.LayerNorm), head.decoder)


def deberta_head(model: Any) -> Head:
    """Return the DeBERTa head. DeBERTa-v3 projects with its word embeddings; older checkpoints use other weights."""
    if model.legacy:
        return bert_head(model)
    head, projection = model.lm_predictions.lm_head, nn.Linear(1, 1, device="meta")
    projection.weight, projection.bias = model.deberta.embeddings.word_embeddings.weight, head.bias
    return Head(nn.Sequential(head.dense, head.transform_act_fn, head.LayerNorm), projection)


def bert_layer(layer: Any, hidden: torch.Tensor, queried: torch.Tensor) -> torch.Tensor:
    attention = layer.attention.self
    query, key, value = attention.query(queried), attention.key(hidden), attention.value(hidden)
    context = attend(query, key, value, attention.num_attention_heads)
    output: torch.Tensor = layer.feed_forward_chunk(layer.attention.output(context, queried))
    return output


def distilbert_layer(layer: Any, hidden: torch.Tensor, queried: torch.Tensor) -> torch.Tensor:
    attention = layer.attention
    query, key, value = attention.q_lin(queried), attention.k_lin(hidden), attention.v_lin(hidden)
    context = attend(query, key, value, attention.n_heads)
    attended = layer.sa_layer_norm(attention.out_lin(context) + queried)
    output: torch.Tensor = layer.output_layer_norm(layer.ffn(attended) + attended)
    return output


class Architecture(NamedTuple):
    """Access to the LM head of a transformers model and to its last layer at a single position.

    stack: attribute of the network that contains the layers. `stack` and `last_layer` are None if the last layer is
        evaluated at all positions.
    """

    head: Callable[[Any], Head]
    stack: str | None = None
    last_layer: LayerFunction | None = None


# By `config.model_type`. Other masked LMs use `without_projection`.
ARCHITECTURES = {
    "bert": Architecture(bert_head, "encoder", bert_layer),
    "roberta": Architecture(roberta_head, "encoder", bert_layer),
    "xlm-roberta": Architecture(roberta_head, "encoder", bert_layer),
    "distilbert": Architecture(distilbert_head, "transformer", distilbert_layer),
    "camembert": Architecture(roberta_head, "encoder", bert_layer),
    "albert": Architecture(albert_head),
    "deberta-v2": Architecture(deberta_head),
    "modernbert": Architecture(lambda model: Head(model.head, model.decoder)),
}


def split_last_layer(model: Any) -> partial[torch.Tensor] | None:
    """Remove the last layer of the encoder of `model`. Return a function of (hidden, queried), or None if unsupported.

    The layer is the first of the function's `args`.
    """
    architecture = ARCHITECTURES.get(model.config.model_type)
    if architecture is None or architecture.stack is None or architecture.last_layer is None:
        return None
    if getattr(model.config, "is_decoder", False):
        return None
    stack = getattr(model.base_model, architecture.stack)
    last = stack.layer[-1]
    stack.layer = stack.layer[:-1]
    return partial(architecture.last_layer, last)


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Return (B, Q, d): multi-head attention of `query` (B, Q, d) to `key` and `value` (B, T, d)."""
    q, k, v = (states.view(*states.shape[:2], n_heads, -1).transpose(1, 2) for states in (query, key, value))
    return scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)  # from (B, H, Q, d / H)


# Models split over several devices by accelerate


def is_split(model: Any) -> bool:
    """Return whether the weights are on several devices, or are moved to a device on demand."""
    devices = {weights.device for weights in model.parameters()}
    return len(devices) > 1 or torch.device("meta") in devices


def device_of(model: Any) -> torch.device:
    """Return the input device of `model`: its device or, for a split model, the device of its first weights."""
    devices = (weights.device for weights in model.parameters())
    return next((device for device in devices if device.type != "meta"), torch.device("cpu"))


def join_parts(model: Any, network: Any) -> None:
    """Make the parts of a split model accept tensors from any device and return output on the model's input device.

    The parts are called separately. Within a part, accelerate moves the tensors. network: the part below the LM head.
    """
    from accelerate.utils import send_to_device

    def move_inputs(part: Any, inputs: Any, kwargs: Any) -> Any:
        return send_to_device((inputs, kwargs), device_of(part))

    def move_output(part: Any, inputs: Any, output: Any) -> Any:
        return send_to_device(output, device)

    device = device_of(model)
    halves = (model.get_encoder(), model.get_decoder()) if model.config.is_encoder_decoder else ()
    for part in {network, model.get_output_embeddings(), *halves}:
        part.register_forward_pre_hook(move_inputs, with_kwargs=True)
        part.register_forward_hook(move_output)
