"""Best-first search over every LM family, compared with exhaustive enumeration of one-token word pairs.

Tuples, order, and scores must match for masked LMs, encoder-decoders with masks or sentinels, and causal LMs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer

from kgharvest.engine.entities import EntityVocabulary
from kgharvest.engine.filters import FILTERS, EntityFilter
from kgharvest.engine.harvest import as_scored, rank
from kgharvest.engine.parts import Question, search_parts
from kgharvest.engine.prompts.prompt_set import PromptSet
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.ranking import TokenRanker
from kgharvest.engine.search import BestFirstSearch
from kgharvest.engine.types import HarvestParams
from tests.kgharvest.engine.language_models.conftest import CAUSAL, FILLING
from tests.kgharvest.engine.tiny_types import TYPES
from tests.sampling import only

PROMPTS = {"the <ENT0> is in <ENT1> .": 0.6, "in a <ENT1> the <ENT0> can swim": 0.4}
PARAMS = HarvestParams(candidates=80, max_entity_repeats=None, disabled_filters=frozenset(FILTERS), batch_size=64)
TYPES_SEARCHED = ("deberta_v3", "electra", "t5", "mistral", "gemma2", "bloom")
INSTRUCTION = "Fill in the blanks so that the sentence is true.\nSentence: {}\n(1):"


@pytest.fixture(
    params=only(["bert", "modernbert", "bart", "gpt2", "llama", "t5", "gemma2"], [*FILLING, *CAUSAL, *TYPES_SEARCHED])
)
def family(request):
    return request.param


class PlainMasked:
    """Reference log-probabilities of words from tokenized sentences with masks."""

    def __init__(self, auto_class, folder, prompts):
        self.prompts = prompts
        self.model = auto_class.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def words(self):
        """Return the words that consist of one token."""
        texts = {self.tokenizer.decode([token]).strip() for token in range(len(self.tokenizer))}
        special = {*self.tokenizer.all_special_tokens, "\N{REPLACEMENT CHARACTER}"}
        return sorted(text for text in texts - special if text and self.token(text) is not None)

    def token(self, word):
        """Return the single token of `word` inside a sentence, or None."""
        inside = self.ids(f"the {word}")[len(self.ids("the")) :]
        return inside[0] if len(inside) == 1 and inside[0] not in self.tokenizer.all_special_ids else None

    def ids(self, text):
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def tuples(self):
        """Return [(pair, token log-probabilities)] for every pair of words."""
        words = self.words()
        mask = self.tokenizer.mask_token
        first = self.logprobs([(mask, mask)], slot=0)[0]
        second = self.logprobs([(word, mask) for word in words], slot=1)
        tokens = [self.token(word) for word in words]
        return [
            ((head, tail), [first[tokens[i]].item(), second[i, tokens[j]].item()])
            for i, head in enumerate(words)
            for j, tail in enumerate(words)
        ]

    @torch.no_grad()
    def logprobs(self, pairs, slot):
        """Return (N, V): log-probabilities of the token in `slot`, the first mask in slot order."""
        mean = 0
        for text, weight in self.prompts.items():
            sentences = [text.replace("<ENT0>", head).replace("<ENT1>", tail) for head, tail in pairs]
            ids = torch.tensor(self.tokenizer(sentences).input_ids)
            masks = (ids == self.tokenizer.mask_token_id).nonzero()[:, 1].view(len(pairs), -1)
            is_reversed = text.index("<ENT1>") < text.index("<ENT0>")
            position = masks[:, 1 if slot == 0 and is_reversed else 0]
            mean = mean + weight * self.model(ids).logits[torch.arange(len(pairs)), position]
        return torch.log_softmax(mean, dim=-1)


class PlainCausal(PlainMasked):
    """Reference log-probabilities of lines from forward passes over the whole text."""

    @torch.no_grad()
    def tuples(self):
        words = [word for word in self.words() if "\n" not in word]
        pairs = [(head, tail) for head in words for tail in words]
        mean, targets = 0, None
        for text, weight in self.prompts.items():
            instruction = INSTRUCTION.format(text.replace("<ENT0>", "(1)").replace("<ENT1>", "(2)"))
            ids = torch.tensor(self.tokenizer([f"{instruction} {h}\n(2): {t}\n" for h, t in pairs]).input_ids)
            n_label = ids.shape[1] - len(self.tokenizer(instruction).input_ids) - 4  # tokens of "(2):"
            targets = torch.tensor([-4 - n_label, -3 - n_label, -2, -1])  # head, line end, tail, line end
            logits = torch.cat([self.model(part).logits[:, targets - 1] for part in ids.split(200)])  # (N, 4, V)
            mean = mean + weight * logits
        logprobs = torch.log_softmax(mean, dim=-1).gather(2, ids[:, targets, None])[..., 0]
        return list(zip(pairs, logprobs.tolist(), strict=True))


class PlainSpanFilling(PlainMasked):
    """Reference log-probabilities of the decoder output for a sentinel, entity by entity, with the next sentinel."""

    @torch.no_grad()
    def tuples(self):
        words = self.words()
        (head,) = self.spans([("<extra_id_0>", "<extra_id_1>")], words)
        tails = self.spans([(word, "<extra_id_0>") for word in words], words)
        return [((words[i], words[j]), [*head[i], *tails[i][j]]) for i in range(len(words)) for j in range(len(words))]

    def spans(self, pairs, words):
        """Return, for each pair in the slots, the log-probabilities of each word and of its end."""
        tokens = torch.tensor([self.token(word) for word in words])
        start, first, second = [0, *self.tokenizer.convert_tokens_to_ids(["<extra_id_0>", "<extra_id_1>"])]
        written = torch.tensor([[start, first, token] for token in tokens.tolist()])
        answers = []
        for pair in pairs:
            mean = 0
            for text, weight in self.prompts.items():
                sentence = text.replace("<ENT0>", pair[0]).replace("<ENT1>", pair[1])
                ids = torch.tensor([self.tokenizer(sentence).input_ids] * len(words))
                mean = mean + weight * self.model(input_ids=ids, decoder_input_ids=written).logits
            logprobs = torch.log_softmax(mean, dim=-1)
            of_words = logprobs[:, 1].gather(1, tokens[:, None])[:, 0]
            answers.append(list(zip(of_words.tolist(), logprobs[:, 2, second].tolist(), strict=True)))
        return answers


def plain(family, folder, prompts=PROMPTS):
    if family in TYPES:
        tiny = TYPES[family]
        kinds = {"MaskedLM": PlainMasked, "CausalLM": PlainCausal, "SpanFillingLM": PlainSpanFilling}
        return kinds[tiny.family](tiny.auto_class, folder, prompts)
    if family in CAUSAL:
        return PlainCausal(AutoModelForCausalLM, folder, prompts)
    return PlainMasked(AutoModelForSeq2SeqLM if family == "bart" else AutoModelForMaskedLM, folder, prompts)


def test_search_finds_best_pairs_of_one_token_words(family, lm, folder_of):
    every = plain(family, folder_of(family)).tuples()
    templates = {PromptTemplate.parse(text): weight for text, weight in PROMPTS.items()}
    ranker = TokenRanker(lm, list(map(lm.encode_prompt, templates)), list(templates.values()), PARAMS.batch_size)
    vocabulary = EntityVocabulary(lm, EntityFilter(list(templates), PARAMS.disabled_filters))
    search = BestFirstSearch(ranker, vocabulary, PARAMS, lambda n: None)

    search.run([(1, 1)])

    costs_of = {pair: costs(logprobs) for pair, logprobs in every}
    expected = [costs_of[pair] for pair in in_order(every)[: PARAMS.candidates]]
    found = search.tuples
    # Tuples that are equal up to rounding may swap, but the search must follow the total order of its own scores.
    assert [candidate.mtl for candidate in found] == pytest.approx([-cost for cost, *_ in expected], abs=1e-5)
    for candidate in found:
        assert candidate.costs == pytest.approx(costs_of[candidate.surface], abs=1e-5)
    assert found == sorted(found, key=lambda candidate: (candidate.costs, candidate.folded, candidate.surface))
    assert len({candidate.folded for candidate in found}) == PARAMS.candidates


def test_search_by_consistency_finds_best_pairs_of_one_token_words(family, lm, folder_of):
    by_prompt = [plain(family, folder_of(family), {text: 1.0}).tuples() for text in PROMPTS]
    expected = best_by_consistency(by_prompt, cap=10)
    templates = list(map(PromptTemplate.parse, PROMPTS))
    prompt_set = PromptSet(tuple(map(lm.encode_prompt, templates)), tuple(PROMPTS.values()))
    params = replace(PARAMS, order="consistency", max_tuples=80, max_entity_tokens=1, max_entity_repeats=10)
    (search,) = search_parts(Question(prompt_set, tuple(templates), params))

    found = search.do(lm, Question(prompt_set, tuple(templates), params), lambda n: None).candidates

    ranked = rank(as_scored(found, params), params)
    assert [scored.score for scored in ranked] == pytest.approx([score for score, *_ in expected[:80]], abs=1e-4)
    score_of = {pair: score for score, _, pair in expected}
    for scored in ranked[:40]:  # near the end, a tuple can differ because of a tie up to rounding
        assert scored.score == pytest.approx(score_of[scored.surface], abs=1e-4)


def best_by_consistency(by_prompt, cap):
    """Return (score, folded, surface), best first: of equal words the best pair, and `cap` pairs for each word."""
    pairs = [pair for pair, _ in by_prompt[0]]
    scores = sum(
        weight * np.array([compatibility(logprobs) for _, logprobs in entries])
        for weight, entries in zip(PROMPTS.values(), by_prompt, strict=True)
    )
    best, repeats, seen = [], Counter(), set()
    for score, pair in sorted(
        zip(scores.tolist(), pairs, strict=True), key=lambda entry: (-entry[0], folded(entry[1]))
    ):
        words = folded(pair)
        if words in seen:
            continue
        seen.add(words)
        if all(repeats[word] < cap for word in words):
            repeats.update(set(words))
            best.append((score, words, pair))
    return best


def compatibility(logprobs):
    """Return Eq. 1 for the log-probabilities of the tokens of two entities of equal length."""
    half = len(logprobs) // 2
    entities = [sum(logprobs[:half]), sum(logprobs[half:])]
    return 2 / 3 * sum(entities) + 1 / 3 * min(entities)


def costs(logprobs):
    return tuple(-logprob for logprob in sorted(logprobs))


def in_order(every):
    """Return the case-insensitively distinct tuples, sorted by MTL, the other token costs, and the strings."""
    best = {}
    for pair, _ in sorted(every, key=lambda entry: (costs(entry[1]), folded(entry[0]), entry[0])):
        best.setdefault(folded(pair), pair)
    return list(best.values())


def folded(pair):
    return tuple(entity.casefold() for entity in pair)


def test_brute_force_covers_many_words(family, folder_of):
    assert len(plain(family, folder_of(family)).words()) > 15
