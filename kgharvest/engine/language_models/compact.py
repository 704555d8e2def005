"""Small BERT implementation without transformers, because importing transformers takes longer than a small harvest.

Attribute names equal those of transformers' BertForMaskedLM, so checkpoints load unchanged and `MaskedLM` accepts the
network. Supports only the output of `train_embedded_lm`: one segment, no dropout, and a WordPiece tokenizer.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn
from torch.nn.functional import gelu

from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.language_models.networks.devices import (
    check_device,
    dtype_named,
    move_to_device,
    randomize_weights,
    weights_fingerprint,
)
from kgharvest.engine.language_models.networks.heads import Hidden, attend
from kgharvest.engine.language_models.networks.placement import AUTO

Config = SimpleNamespace  # the fields of config.json
CPU_TOKENS_AT_ONCE = 64  # in the feed-forward network, which has the largest intermediate vectors


def load_compact(
    folder: Path, device: str = "cpu", dtype: str = "float32", random_seed: int | None = None, name: str | None = None
) -> MaskedLM:
    """Return the embedded LM in `folder`. Equivalent to `loading.load`, but faster.

    device: "auto" uses one GPU if available, otherwise the CPU. name: shown in messages; default: the folder.
    Raises EngineError if the device or dtype is unavailable.
    """
    if device == AUTO:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    check_device(device)
    config = Config(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
    model = CompactBert(config).to(dtype_named(dtype))
    weights = load_file(folder / "model.safetensors")
    weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"]  # shared
    weights["cls.predictions.decoder.bias"] = weights.pop("cls.predictions.bias")
    model.load_state_dict(weights)
    if random_seed is not None:
        randomize_weights(model, random_seed)
    model = move_to_device(model.eval().requires_grad_(False), device, name or folder.name)
    return MaskedLM(model, CompactTokenizer(folder), name or str(folder), weights_fingerprint(folder))


class CompactTokenizer:
    """The subset of a transformers tokenizer that `Tokens` uses."""

    chat_template = None

    def __init__(self, folder: Path) -> None:
        self.backend_tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.added_tokens_decoder = self.backend_tokenizer.get_added_tokens_decoder()
        special = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        self.unk_token_id = self._id(special["unk_token"])
        self.mask_token_id = self._id(special["mask_token"])
        self.all_special_ids = [self._id(token) for name, token in special.items() if name.endswith("_token")]

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size())

    def __call__(self, text: str) -> SimpleNamespace:
        return SimpleNamespace(input_ids=self.backend_tokenizer.encode(text).ids)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str | None]:
        return [self.backend_tokenizer.id_to_token(index) for index in ids]

    def _id(self, token: str) -> int:
        return self.backend_tokenizer.get_vocab()[token]


# Network


class CompactBert(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.bert = Bert(config)
        transform = nn.Sequential()
        transform.dense, transform.gelu = nn.Linear(config.hidden_size, config.hidden_size), nn.GELU()
        transform.LayerNorm = layer_norm(config)
        decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.cls = nn.ModuleDict({"predictions": nn.ModuleDict({"transform": transform, "decoder": decoder})})

    @property
    def base_model(self) -> Bert:
        return self.bert

    @property
    def device(self) -> torch.device:
        return self.get_input_embeddings().weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.get_input_embeddings().weight.dtype

    def get_input_embeddings(self) -> nn.Embedding:
        return self.bert.get_input_embeddings()


class Bert(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.encoder = nn.ModuleDict({"layer": layers})

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings.word_embeddings

    def forward(self, input_ids: torch.Tensor | None = None, inputs_embeds: torch.Tensor | None = None) -> Hidden:
        """Return the hidden states for `input_ids` (B, T) or for embeddings `inputs_embeds` (B, T, d)."""
        words = self.embeddings.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        hidden = self.embeddings(words)
        layers: Any = self.encoder["layer"]
        for layer in layers:
            hidden = layer(hidden)
        return Hidden(hidden)


class Embeddings(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(1, config.hidden_size)
        self.LayerNorm = layer_norm(config)

    def forward(self, words: torch.Tensor) -> torch.Tensor:  # (B, T, d)
        positions = self.position_embeddings.weight[: words.shape[1]] + self.token_type_embeddings.weight[0]  # (T, d)
        embedded: torch.Tensor = self.LayerNorm(words + positions)
        return embedded


class Layer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        output = AddAndNorm(config.hidden_size, config)
        self.attention = nn.ModuleDict({"self": SelfAttention(config), "output": output})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(config.hidden_size, config.intermediate_size)})
        self.output = AddAndNorm(config.intermediate_size, config)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.feed_forward_chunk(self.attention["output"](self.attention["self"](hidden), hidden))

    def feed_forward_chunk(self, attended: torch.Tensor) -> torch.Tensor:
        """Apply the feed-forward network to `attended` (B, T, d). On a CPU, process small chunks to save memory."""
        if attended.device.type != "cpu":
            return self._feed_forward(attended)
        parts = torch.split(attended.flatten(0, 1), CPU_TOKENS_AT_ONCE)
        return torch.cat([self._feed_forward(part) for part in parts]).view_as(attended)

    def _feed_forward(self, attended: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.output(gelu(self.intermediate["dense"](attended)), attended)
        return output


class SelfAttention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.query, self.key, self.value = (nn.Linear(config.hidden_size, config.hidden_size) for _ in range(3))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return attend(self.query(hidden), self.key(hidden), self.value(hidden), self.num_attention_heads)


class AddAndNorm(nn.Module):
    """Projection, residual connection, and layer norm at the end of each half of a layer."""

    def __init__(self, n_inner: int, config: Config) -> None:
        super().__init__()
        self.dense = nn.Linear(n_inner, config.hidden_size)
        self.LayerNorm = layer_norm(config)

    def forward(self, inner: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.LayerNorm(self.dense(inner).add_(residual))
        return normed


def layer_norm(config: Config) -> nn.LayerNorm:
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
