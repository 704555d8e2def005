"""Causal LMs of any type: the LM writes one entity per line, after worked examples or an instruction.

Harvests show the seed tuples as examples (kgharvest.engine.prompts.few_shot). Without examples, the prompt is:

Fill in the blanks so that the sentence is true.
Sentence: (1) is the capital of (2) .
(1): Paris
(2): France
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import takewhile
from typing import Any

import torch

from kgharvest.engine.language_models.base import EncodedPrompt, Pattern, Query, Tick, TokenIds
from kgharvest.engine.language_models.batching import evaluate_batch, halve, same_length_batches
from kgharvest.engine.language_models.networks.heads import N_TOKENS, device_of, head_on_hidden, is_close, network_of
from kgharvest.engine.language_models.pretrained import PretrainedLM, TokenizedLM
from kgharvest.engine.prompts.few_shot import instruction, is_in_lines, turns
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import UnsupportedModel

MOST_CACHES = 16  # beginnings of prompts to keep


class LineByLine(TokenizedLM):
    """Query format of causal LMs, local or behind a server: `query` asks for the token after all filled tokens.

    If the LM has a chat template (instruction-tuned LMs), the instruction is the user message.
    """

    def end_entities_with_lines(self) -> None:
        """End entities with line breaks and exclude line breaks from entities. Raises UnsupportedModel."""
        self.entity_end = self.tokens.continuing("\n")
        line_breaks = self.tokens.containing("\n")
        if not self.entity_end or not line_breaks[list(self.entity_end)].all():
            raise UnsupportedModel(
                f"The tokenizer of {self.name!r} has no line break. Use a causal LM with line breaks."
            )
        self.starts_entity &= ~line_breaks
        self.continues_entity &= ~line_breaks

    def encode_prompt(self, prompt: PromptTemplate) -> EncodedPrompt:
        """Return the prompt as segments: an instruction with the first label, the other labels, and an empty text.

        A prompt that is written in lines (kgharvest.engine.prompts.few_shot) is encoded unchanged.
        """
        self.tokens.check_text(prompt.text)
        if is_in_lines(prompt):
            text, *labels = (segment.strip() for segment in prompt.segments[:-1])
            conversation = turns(text)
        else:
            text, *labels = (f"({number}):" for number in range(1, prompt.arity + 1))
            conversation = [("user", instruction(prompt)), ("assistant", text)]
        first = self.tokens.encode_conversation(conversation) if conversation else self.tokens.starting(text)
        return EncodedPrompt((first, *map(self.tokens.continuing, labels), ()), tuple(range(prompt.arity)))

    def query(self, prompt: EncodedPrompt, pattern: Pattern, filled: TokenIds) -> Query:
        ids: TokenIds = ()
        for label, length in zip(prompt.segments, pattern, strict=False):
            n_line = length + len(self.entity_end)
            ids = ids + label + filled[:n_line]
            if len(filled) < n_line:
                break
            filled = filled[n_line:]
        # There are few queries about a prompt with one slot, such as a judge's question.
        n_shared = len(prompt.segments[0]) - 1 if len(prompt.slots) > 1 else 0
        return self._checked_query(ids, len(ids) - 1, n_shared)


class CausalLM(LineByLine, PretrainedLM):
    """A causal LM behind the `LanguageModel` protocol."""

    def __init__(self, model: Any, tokenizer: Any, name: str, revision: str | None) -> None:
        head = head_on_hidden(model, lambda ids: read_whole(network_of(model), ids), name)
        super().__init__(model, tokenizer, name, revision, head)
        self._caches: dict[TokenIds, Any] = {}
        self._shares_beginnings = shares_beginnings(self._network)
        self.end_entities_with_lines()

    @torch.inference_mode()
    def vectors(self, queries: Sequence[Query], batch_size: int, tick: Tick) -> torch.Tensor:
        """Return the vectors of `queries`. A text is read once for all queries that are beginnings of it."""
        rows: dict[Query, list[int]] = defaultdict(list)
        for row, text in enumerate(longest_texts(queries)):
            rows[text].append(row)
        vectors = torch.empty(0, device=self.device)
        shortest = {text: min(len(queries[row].ids) for row in answered) for text, answered in rows.items()}
        for shared, texts in self._by_shared_ids(shortest).items():
            forward = partial(self._read_after, self._cache(shared))
            rests = [Query(text.ids[len(shared) :], 0) for text in texts]
            batches = deque(same_length_batches(rests, batch_size, self._tokens_at_once))
            while batches:
                batch = batches.popleft()
                outputs = evaluate_batch([rests[index] for index in batch], forward, self.device)  # (B, T, d')
                if outputs is None:
                    batches = halve([batch, *batches])
                    continue
                if not len(vectors):
                    vectors = torch.empty(len(queries), outputs.shape[-1], device=self.device)
                for index, output in zip(batch, outputs, strict=True):
                    answered = rows[texts[index]]
                    vectors[answered] = output[[len(queries[row].ids) - 1 - len(shared) for row in answered]]
                tick()
        return vectors

    def _by_shared_ids(self, shortest: Mapping[Query, int]) -> dict[TokenIds, list[Query]]:
        """Group texts by the ids that they begin with: those of their prompt, or as many as `runs_that_share`.

        shortest: texts, with the length of the shortest query that each answers.
        """
        if not self._shares_beginnings:
            return {(): list(shortest)}
        by_prompt: dict[TokenIds, list[Query]] = defaultdict(list)
        for text in shortest:
            by_prompt[text.ids[: text.n_shared]].append(text)
        groups = {shared: group for shared, group in by_prompt.items() if len(group) > 1 and shared}
        others = [text for shared, group in by_prompt.items() if shared not in groups for text in group]
        for run, n_shared in runs_that_share(sorted(others)):
            shared = run[0].ids[: min(n_shared, *(shortest[text] - 1 for text in run))]
            groups.setdefault(shared, []).extend(run)
        return groups

    def _cache(self, ids: TokenIds) -> Any:
        """Return the network's cache after it has read `ids`, or None if there are none."""
        if not ids:
            return None
        cache = self._caches.pop(ids, None)
        if cache is None:
            cache = cache_of(self._network, torch.tensor([ids], device=self.device))
        self._caches[ids] = cache  # the most recently used is last
        if len(self._caches) > MOST_CACHES:
            del self._caches[next(iter(self._caches))]
        return cache

    def _read_after(self, cache: Any, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        self.n_read["sequences"] += len(ids)
        return self._hidden(ids) if cache is None else after_shared(self._network, cache, ids)

    def _hidden(self, ids: torch.Tensor) -> torch.Tensor:
        return read_whole(self._network, ids)


def longest_texts(queries: Sequence[Query]) -> list[Query]:
    """Return for each query the longest of `queries` that begins with its ids."""
    longest: dict[Query, Query] = {}
    text: Query | None = None
    by_prompt = sorted(set(queries), key=lambda query: (query.n_shared, query.ids), reverse=True)
    for query in by_prompt:  # a text comes directly before its beginnings
        if text is None or query.n_shared != text.n_shared or text.ids[: len(query.ids)] != query.ids:
            text = query
        longest[query] = text
    return [longest[query] for query in queries]


def runs_that_share(texts: Sequence[Query]) -> list[tuple[list[Query], int]]:
    """Split sorted `texts` into runs with a common beginning. Return each run with the length of the beginning.

    Runs end between texts that share less than half of their ids. The beginning of a single text is empty.
    """
    runs: list[tuple[list[Query], int]] = []
    for text in texts:
        run, length = runs[-1] if runs else ([], 0)
        n_shared = n_common(run[-1].ids, text.ids[:-1]) if run else 0
        if 2 * n_shared >= len(text.ids):
            run.append(text)
            runs[-1] = run, min(n_shared, length or n_shared, len(run[0].ids) - 1)
        else:
            runs.append(([text], 0))
    return runs


def n_common(ids: TokenIds, others: TokenIds) -> int:
    """Return the length of the common beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids, others, strict=False)))


def read_whole(network: Any, ids: torch.Tensor) -> torch.Tensor:
    hidden: torch.Tensor = network(input_ids=ids, use_cache=False).last_hidden_state
    return hidden


@torch.inference_mode()
def shares_beginnings(network: Any) -> bool:
    """Return whether the cache of a common beginning can be reused for several texts. Tested with a short text."""
    ids = torch.arange(N_TOKENS, device=device_of(network)).repeat(2, 1)
    ids[1, -1] = 0
    try:
        cache = cache_of(network, ids[:1, :2])
        hidden = [after_shared(network, cache, ids[:, 2:]) for _ in range(2)][1]  # the cache is used repeatedly
    except (AttributeError, TypeError, ValueError, RuntimeError):  # no cache, or another cache interface
        return False
    return is_close(hidden.float(), network(input_ids=ids, use_cache=False).last_hidden_state[:, 2:].float())


def cache_of(network: Any, ids: torch.Tensor) -> Any:
    return network(input_ids=ids, use_cache=True).past_key_values


def after_shared(network: Any, cache: Any, ids: torch.Tensor) -> torch.Tensor:
    """Return (B, T, d), the output of the network for `ids` (B, T) that follow the cached beginning of a prompt."""
    cache = deepcopy(cache)  # the network adds `ids` to it
    cache.batch_repeat_interleave(len(ids))
    hidden: torch.Tensor = network(input_ids=ids, past_key_values=cache).last_hidden_state
    return hidden
