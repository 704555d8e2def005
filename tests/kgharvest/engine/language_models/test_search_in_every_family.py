"""The same search over every family finds what enumerating all pairs of one-token words with plain forwards finds."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer

from kgharvest.engine.entities import EntityVocabulary
from kgharvest.engine.filters import FILTERS, EntityFilter
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.ranking import TokenRanker
from kgharvest.engine.search import BestFirstSearch
from kgharvest.engine.types import HarvestParams
from tests.kgharvest.engine.language_models.conftest import CAUSAL

PROMPTS = {"the <ENT0> is in <ENT1> .": 0.6, "in a <ENT1> the <ENT0> can swim": 0.4}
PARAMS = HarvestParams(candidates=80, max_entity_repeats=None, disabled_filters=frozenset(FILTERS), batch_size=64)
INSTRUCTION = "Fill in the blanks so that the sentence is true.\nSentence: {}\n(1):"


class PlainMasked:
    """Log-probabilities of words by the tokenizer's own reading of sentences with masks."""

    def __init__(self, auto_class, folder):
        self.model = auto_class.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def words(self):
        """Return the words that are one token."""
        texts = {self.tokenizer.decode([token]).strip() for token in range(len(self.tokenizer))}
        special = set(self.tokenizer.all_special_tokens)
        return sorted(text for text in texts - special if text and self.token(text) is not None)

    def token(self, word):
        """Return the one token that stands for `word` inside a sentence, if there is one."""
        inside = self.ids(f"the {word}")[len(self.ids("the")) :]
        return inside[0] if len(inside) == 1 and inside[0] not in self.tokenizer.all_special_ids else None

    def ids(self, text):
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def tuples(self):
        """Return [(pair, its tokens' log-probabilities)] for every pair of words."""
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
        """Return (N, V): what stands in `slot`, the first mask in slot order."""
        mean = 0
        for text, weight in PROMPTS.items():
            sentences = [text.replace("<ENT0>", head).replace("<ENT1>", tail) for head, tail in pairs]
            ids = torch.tensor(self.tokenizer(sentences).input_ids)
            masks = (ids == self.tokenizer.mask_token_id).nonzero()[:, 1].view(len(pairs), -1)
            is_reversed = text.index("<ENT1>") < text.index("<ENT0>")
            position = masks[:, 1 if slot == 0 and is_reversed else 0]
            mean = mean + weight * self.model(ids).logits[torch.arange(len(pairs)), position]
        return torch.log_softmax(mean, dim=-1)


class PlainCausal(PlainMasked):
    """Log-probabilities of lines, read off forwards over the whole text."""

    @torch.no_grad()
    def tuples(self):
        words = [word for word in self.words() if "\n" not in word]
        pairs = [(head, tail) for head in words for tail in words]
        mean, targets = 0, None
        for text, weight in PROMPTS.items():
            instruction = INSTRUCTION.format(text.replace("<ENT0>", "(1)").replace("<ENT1>", "(2)"))
            ids = torch.tensor(self.tokenizer([f"{instruction} {h}\n(2): {t}\n" for h, t in pairs]).input_ids)
            n_label = ids.shape[1] - len(self.tokenizer(instruction).input_ids) - 4  # tokens of "(2):"
            targets = torch.tensor([-4 - n_label, -3 - n_label, -2, -1])  # head, line's end, tail, line's end
            logits = torch.cat([self.model(part).logits[:, targets - 1] for part in ids.split(200)])  # (N, 4, V)
            mean = mean + weight * logits
        logprobs = torch.log_softmax(mean, dim=-1).gather(2, ids[:, targets, None])[..., 0]
        return list(zip(pairs, logprobs.tolist(), strict=True))


def plain(family, folder):
    if family in CAUSAL:
        return PlainCausal(AutoModelForCausalLM, folder)
    return PlainMasked(AutoModelForSeq2SeqLM if family == "bart" else AutoModelForMaskedLM, folder)


def test_the_search_finds_the_best_pairs_of_one_token_words(family, lm, folder_of):
    every = {pair: sorted(logprobs) for pair, logprobs in plain(family, folder_of(family)).tuples()}
    templates = {PromptTemplate.parse(text): weight for text, weight in PROMPTS.items()}
    ranker = TokenRanker(lm, list(map(lm.encode_prompt, templates)), list(templates.values()), PARAMS.batch_size)
    vocabulary = EntityVocabulary(lm, EntityFilter(list(templates), PARAMS.disabled_filters))
    search = BestFirstSearch(ranker, vocabulary, PARAMS, lambda n: None)

    search.run([(1, 1)])

    mtls = [candidate.mtl for candidate in search.tuples]
    assert mtls == pytest.approx([every[candidate.surface][0] for candidate in search.tuples], abs=1e-4)
    assert mtls == pytest.approx(distinct_mtls(every)[: PARAMS.candidates], abs=1e-4)


def distinct_mtls(every):
    """Return the MTLs, best first, of tuples that differ after case-folding."""
    best = {}
    for pair, logprobs in sorted(every.items(), key=lambda entry: entry[1], reverse=True):
        best.setdefault(tuple(entity.casefold() for entity in pair), logprobs[0])
    return list(best.values())


def test_the_brute_force_sees_many_words(family, folder_of):
    assert len(plain(family, folder_of(family)).words()) > 15
