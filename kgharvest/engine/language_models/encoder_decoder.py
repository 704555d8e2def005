"""Encoder-decoders: LMs with a mask token (BART) or sentinels (T5), and text-to-text models for paraphrasing.

To fill in masks, the encoder reads the masked prompt and the decoder reads the same prompt shifted by one position.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kgharvest.engine.language_models.base import EncodedPrompt, Pattern, Query, TokenIds
from kgharvest.engine.language_models.masked import MaskFillingLM
from kgharvest.engine.language_models.networks.heads import device_of, head_on_hidden, network_of
from kgharvest.engine.language_models.pretrained import PretrainedLM, weights_per_token
from kgharvest.engine.language_models.threads import suitable_threads
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt

SPARE_TOKENS = 20  # allowed output tokens beyond twice the number of input tokens
TOP_P = 0.95


class InfillingLM(MaskFillingLM):
    """An encoder-decoder behind the `LanguageModel` protocol, with one mask per missing token as in masked LMs."""

    def __init__(self, model: Any, tokenizer: Any, name: str, revision: str | None) -> None:
        head = head_on_hidden(model, lambda ids: read_both(network_of(model), ids, ids), name)
        super().__init__(model, tokenizer, name, revision, head)
        self._start_id: int = model.config.decoder_start_token_id

    def _hidden(self, ids: torch.Tensor) -> torch.Tensor:
        shifted = torch.nn.functional.pad(ids[:, :-1], (1, 0), value=self._start_id)
        if self._soft_words is None:
            return read_both(self._network, ids, shifted)
        # The decoder copies the prompt up to the mask (Qin & Eisner 2021, section 4.2), so it reads soft words as well.
        words, copied = (self._embedded(tokens, self._soft_words.vectors) for tokens in (ids, shifted))
        hidden: torch.Tensor = self._network(
            inputs_embeds=words, decoder_inputs_embeds=copied, use_cache=False
        ).last_hidden_state
        return hidden


def read_both(network: Any, ids: torch.Tensor, decoder_ids: torch.Tensor) -> torch.Tensor:
    """Return (B, T, d), the decoder's output for `decoder_ids` (B, T) with `ids` as the encoder's input."""
    hidden: torch.Tensor = network(input_ids=ids, decoder_input_ids=decoder_ids, use_cache=False).last_hidden_state
    return hidden


class Seq2SeqModel:
    """A text-to-text model (T5, BART, PEGASUS) and its tokenizer."""

    def __init__(self, model: Any, tokenizer: Any, name: str) -> None:
        self.name = name
        self._model, self._tokenizer, self.device = model, tokenizer, device_of(model)
        self.weights_per_token = weights_per_token(model)

    def beam(self, text: str, n: int) -> list[str]:
        """Return the `n` best outputs of a beam search, best first."""
        with suitable_threads(self):
            return self._read(self._beam(text, n))

    @torch.inference_mode()
    def beam_with_logprobs(self, text: str, n: int) -> list[tuple[str, float]]:
        """Return the outputs of a beam search with their log-probabilities in nats, most likely first."""
        with suitable_threads(self):
            return self._beam_with_logprobs(text, n)

    def _beam_with_logprobs(self, text: str, n: int) -> list[tuple[str, float]]:
        outputs = self._beam(text, n)  # (n, T), including the start token
        totals = self._output_logprobs(text, outputs)
        return sorted(zip(self._read(outputs), totals, strict=True), key=lambda output: (-output[1], output[0]))

    @torch.inference_mode()
    def target_logprobs(self, text: str, targets: Sequence[str]) -> list[float]:
        """Return the log-probability of each of `targets` as the output for `text`, in nats."""
        encoded = self._tokenizer(text_target=list(targets), padding=True, return_tensors="pt").input_ids
        start = torch.full((len(encoded), 1), self._model.config.decoder_start_token_id)
        with suitable_threads(self):
            return self._output_logprobs(text, torch.cat([start, encoded], dim=1).to(self.device))

    def _output_logprobs(self, text: str, outputs: torch.Tensor) -> list[float]:
        """Return log P(output | text) of `outputs` (n, T), which include the start token."""
        inputs = self._encoded(text)
        n, targets = len(outputs), outputs[:, 1:]
        logits = self._model(
            input_ids=inputs.input_ids.expand(n, -1),
            attention_mask=inputs.attention_mask.expand(n, -1),
            decoder_input_ids=outputs[:, :-1],
        ).logits.float()  # (n, T - 1, V)
        logprobs = logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
        ends = torch.isin(targets, torch.tensor(self._model.generation_config.eos_token_id, device=targets.device))
        is_output = ends.cumsum(-1) - ends.long() == 0  # up to and including the first end token
        totals: list[float] = (logprobs * is_output).sum(-1).tolist()
        return totals

    def sample(self, text: str, n: int, seed: int) -> list[str]:
        """Return `n` outputs drawn with `seed`. Does not change torch's global random state."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices), suitable_threads(self):
            torch.manual_seed(seed)
            return self._read(self._generate(text, num_beams=1, num_return_sequences=n, do_sample=True, top_p=TOP_P))

    def _beam(self, text: str, n: int) -> torch.Tensor:
        return self._generate(text, num_beams=n, num_return_sequences=n, do_sample=False)

    @torch.inference_mode()
    def _generate(self, text: str, **options: Any) -> torch.Tensor:
        """Return the generated tokens (n, T)."""
        inputs = self._encoded(text)
        limit = min(2 * inputs.input_ids.shape[1] + SPARE_TOKENS, self._n_positions - 1)
        outputs: torch.Tensor = self._model.generate(
            input_ids=inputs.input_ids, attention_mask=inputs.attention_mask, max_new_tokens=limit, **options
        )
        return outputs

    def _encoded(self, text: str) -> Any:
        limit = min(self._tokenizer.model_max_length, self._n_positions)
        return self._tokenizer(text, return_tensors="pt", truncation=True, max_length=limit).to(self.device)

    @property
    def _n_positions(self) -> int:
        """Maximum number of tokens. T5's relative positions have no maximum, so 512 is used for T5."""
        return getattr(self._model.config, "max_position_embeddings", None) or 512

    def _read(self, outputs: torch.Tensor) -> list[str]:
        return [text.strip() for text in self._tokenizer.batch_decode(outputs, skip_special_tokens=True)]


# Span filling (T5, mT5, UL2)
#
# Sentinels mark the blanks, and the decoder writes their contents:
# Encoder: <extra_id_0> is the capital of <extra_id_1> .      Encoder: Paris is the capital of <extra_id_0> .
# Decoder: <extra_id_0> Paris <extra_id_1>                    Decoder: <extra_id_0> France <extra_id_1>
# The current blank gets the first sentinel, as in pre-training. Later blanks get the following sentinels in query
# order. The next sentinel marks the end of an entity and counts towards the probability of the entity.


SENTINEL = re.compile(r"<extra_id_(\d+)>")


def sentinels_in(vocabulary: Mapping[str, int]) -> list[int]:
    """Return the ids of the sentinels 0, 1, ..., up to the first gap."""
    numbered = {int(match[1]): index for token, index in vocabulary.items() if (match := SENTINEL.fullmatch(token))}
    ids: list[int] = []
    while len(ids) in numbered:
        ids.append(numbered[len(ids)])
    return ids


class SpanFillingLM(PretrainedLM):
    """An encoder-decoder with sentinels behind the `LanguageModel` protocol.

    The ids of a query are the encoder's ids followed by the decoder's ids. The position of a query is the start of the
    decoder's ids. The answer to a query is the decoder's next token.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str, revision: str | None) -> None:
        self._encoder, self._decoder = model.get_encoder(), model.get_decoder()
        head = head_on_hidden(model, lambda ids: self._decoded(ids, self._encoded(ids)), name)
        super().__init__(model, tokenizer, name, revision, head)
        self._sentinels = sentinels_in(tokenizer.get_vocab())
        self._start_id: int = model.config.decoder_start_token_id
        self.entity_end = (self._sentinels[1],)

    def encode_prompt(self, prompt: PromptTemplate) -> EncodedPrompt:
        if prompt.arity > len(self._sentinels):
            raise BadPrompt(f"{self.name} fills in at most {len(self._sentinels)} blanks. Use fewer slots.")
        return super().encode_prompt(prompt)

    def query(self, prompt: EncodedPrompt, pattern: Pattern, filled: TokenIds) -> Query:
        entities: list[TokenIds] = []  # the complete entities; only the partial entity remains in `filled`
        for length in pattern:
            n_tokens = length + len(self.entity_end)
            if len(filled) < n_tokens:
                break
            entities.append(filled[:length])
            filled = filled[n_tokens:]
        blanks = [(sentinel,) for sentinel in self._sentinels[: len(pattern) - len(entities)]]
        contents = [*entities, *blanks]
        ids = prompt.segments[0]
        for slot, segment in zip(prompt.slots, prompt.segments[1:], strict=True):
            ids = ids + contents[slot] + segment
        return self._checked_query((*ids, self._start_id, self._sentinels[0], *filled), len(ids))

    def _hidden(self, ids: torch.Tensor) -> torch.Tensor:
        return self._decoded(ids, self._encoded(ids))

    def _hidden_at(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        rows_of = {begin: (positions == begin).nonzero()[:, 0] for begin in set(positions.tolist())}
        parts = []
        for begin, rows in rows_of.items():
            # Each distinct text is encoded once.
            texts, text_of_row = torch.unique(ids[rows, :begin], dim=0, return_inverse=True)
            parts.append(self._decoded(ids[rows, begin:], self._encoded(texts)[text_of_row])[:, -1])
        hidden = torch.empty(len(ids), parts[0].shape[1], dtype=parts[0].dtype, device=ids.device)
        return hidden.index_copy_(0, torch.cat(list(rows_of.values())), torch.cat(parts))

    def _encoded(self, ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self._encoder(input_ids=ids).last_hidden_state
        return hidden

    def _decoded(self, ids: torch.Tensor, encoded: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self._decoder(
            input_ids=ids, encoder_hidden_states=encoded, use_cache=False
        ).last_hidden_state
        return hidden
