"""Overhead of prompt learning over its forward and backward passes: CPU seconds in one run, one thread.

    python benches/prompt_speed.py [--model embedded bert-base] [--repeats 5]

Each repeat learns prompts, records the batches given to the LM, and gives them to the bare network again: the same
tokens in the same shapes, the head at the mask, backward passes if gradients were required, no bookkeeping. Prints the
median ratio and the sequences per second of both. Limits: 1.2 for AutoPrompt, 1.3 for an epoch of soft prompts.
"""

from __future__ import annotations

import argparse
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.embedded_lm.world import load_world
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.language_models.pretrained import PretrainedLM
from kgharvest.engine.probing import EncodedFact, UsableFacts
from kgharvest.engine.prompt_learning.autoprompt import (
    TRIGGER,
    AutoPromptParams,
    TriggerTask,
    TriggerTemplate,
    allowed_triggers,
    search_trigger,
)
from kgharvest.engine.prompt_learning.objectives import Compatibility, Example, Likelihood
from kgharvest.engine.prompt_learning.soft_prompts import SoftPromptParams, learn_soft_prompts, soften
from kgharvest.engine.prompts.template import PromptTemplate

LIMITS = {"autoprompt": 1.2, "autoprompt-seeds": 1.2, "soft": 1.3, "soft-deep": 1.3}
N_TRIGGERS, N_PROMPTS = 5, 4


class Batch(NamedTuple):
    """A batch given to the LM: ids (B, T), some of them soft words; positions (B,)."""

    ids: torch.Tensor
    positions: torch.Tensor
    with_gradients: bool


@dataclass(frozen=True)
class Workload:
    """Amount learned in a repeat; small for a large LM."""

    lm: MaskedLM
    n_facts: int
    n_dev: int
    n_candidates: int
    batch_size: int
    iterations: int
    epochs: int

    def facts(self) -> tuple[UsableFacts, UsableFacts]:
        """Return random facts for train and dev, with subjects of one to three tokens."""
        rng = np.random.default_rng(0)
        words = np.flatnonzero(self.lm.starts_entity)
        drawn = [
            EncodedFact(tuple(rng.choice(words, 1 + number % 3).tolist()), int(rng.choice(words)))
            for number in range(self.n_facts + self.n_dev)
        ]
        return UsableFacts(tuple(drawn[: self.n_facts]), {}), UsableFacts(tuple(drawn[self.n_facts :]), {})


# Prompt learning


def autoprompt(work: Workload, seed: int) -> None:
    lm = work.lm
    train, dev = ([Example((fact.head,), (fact.tail,)) for fact in part.facts] for part in work.facts())
    template = TriggerTemplate((lm.tokens.prefix, (TRIGGER,) * N_TRIGGERS, lm.tokens.suffix), (0, 1))
    task = TriggerTask(Likelihood(), train, dev, allowed_triggers(lm, []))
    start = random.Random(seed).sample(np.flatnonzero(task.allowed).tolist(), N_TRIGGERS)
    params = AutoPromptParams(work.n_candidates, work.batch_size, work.iterations, seed=seed)
    search_trigger(lm, template, start, task, params)


def autoprompt_on_seeds(work: Workload, seed: int) -> None:
    """Learn as in a harvest: from the compatibility of five seed tuples, with several forward passes for each."""
    lm = work.lm
    seeds = [Example((fact.head, (fact.tail,))) for fact in work.facts()[0].facts[:5]]
    template = TriggerTemplate((lm.tokens.prefix, (TRIGGER,) * N_TRIGGERS, lm.tokens.suffix), (0, 1))
    task = TriggerTask(Compatibility(), seeds, seeds, allowed_triggers(lm, []))
    params = AutoPromptParams(work.n_candidates, work.batch_size, 2 * work.iterations, seed=seed)
    search_trigger(lm, template, (lm.mask_id,) * N_TRIGGERS, task, params)


def soft(work: Workload, seed: int, site: str = "word") -> None:
    train, dev = work.facts()
    softened, vectors = soften(work.lm, prompts(work.lm))
    params = SoftPromptParams(site, learning_rate=1e-2, batch_size=work.batch_size, epochs=work.epochs, seed=seed)
    learn_soft_prompts(work.lm, softened, vectors, train, dev, params)


def prompts(lm: MaskedLM) -> list:
    relation = next(relation for relation in load_world() if relation.name == "capital_of")
    texts = [phrasing.text for phrasing in relation.phrasings[:N_PROMPTS]]
    return [lm.encode_prompt(PromptTemplate.parse(text)) for text in texts]


LEARN: dict[str, Callable[[Workload, int], None]] = {
    "autoprompt": autoprompt,
    "autoprompt-seeds": autoprompt_on_seeds,
    "soft": soft,
    "soft-deep": partial(soft, site="deep"),
}


# Bare network


@contextmanager
def recorded() -> Iterator[list[Batch]]:
    """Record every batch that an LM is given."""
    batches: list[Batch] = []
    forward = PretrainedLM._forward

    def recording(lm: PretrainedLM, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        batches.append(Batch(ids, positions, torch.is_grad_enabled() and not torch.is_inference_mode_enabled()))
        return forward(lm, ids, positions)

    PretrainedLM._forward = recording
    try:
        yield batches
    finally:
        PretrainedLM._forward = forward


def bare(lm: MaskedLM, batches: list[Batch]) -> None:
    """Give the batches to the bare network: forward pass, head at the mask, backward pass to the word vectors."""
    for batch in batches:
        if batch.with_gradients:
            words = lm.word_embeddings[batch.ids.clamp(max=lm.vocab_size - 1)].requires_grad_()  # (B, T, d)
            loss = torch.logsumexp(bare_logits(lm, {"inputs_embeds": words}, batch.positions), dim=-1).sum()
            torch.autograd.grad(loss, words)
        else:
            with torch.inference_mode():
                ids = batch.ids.clamp(max=lm.vocab_size - 1)
                bare_logits(lm, {"input_ids": ids}, batch.positions)


def bare_logits(lm: MaskedLM, inputs: dict[str, torch.Tensor], positions: torch.Tensor) -> torch.Tensor:
    """Return (B, V), with the last layer at the mask only, as the engine runs it."""
    hidden = lm._network(**inputs).last_hidden_state  # (B, T, d)
    queried = hidden[torch.arange(len(hidden)), positions, None]  # (B, 1, d)
    return lm._head.projection(lm._head.transform(lm._last_layer(hidden, queried)[:, 0]))


# Measurement


def measure(method: str, work: Workload, repeats: int) -> None:
    ratios, rates, bare_rates = [], [], []
    for seed in range(repeats + 1):  # the first repeat warms up
        with recorded() as batches:
            learning_s = cpu_seconds(partial(LEARN[method], work, seed))
        bare_s = cpu_seconds(partial(bare, work.lm, batches))
        n_sequences = sum(len(batch.ids) for batch in batches)
        if seed:
            ratios.append(learning_s / bare_s)
            rates.append(n_sequences / learning_s)
            bare_rates.append(n_sequences / bare_s)
    ratio = statistics.median(ratios)
    verdict = "holds" if ratio <= LIMITS[method] else f"ABOVE {LIMITS[method]}"
    print(
        f"  {method:16}  {ratio:5.3f} ({min(ratios):.3f}-{max(ratios):.3f})  {verdict:10}"
        f"  {statistics.median(rates):9,.0f} forwards/s, bare {statistics.median(bare_rates):9,.0f}",
        flush=True,
    )


def cpu_seconds(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def bert_base(folder: Path) -> MaskedLM:
    """Return an LM of the size of BERT-base with random weights."""
    torch.manual_seed(0)
    letters = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]
    words = {word for phrasing in load_world()[0].phrasings for word in phrasing.text.lower().split()}
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", *letters, *sorted(words)]
    pieces = list(dict.fromkeys([*pieces, *(f"word{number}" for number in range(30522))]))[:30522]
    tokenizer = BertTokenizer({piece: index for index, piece in enumerate(pieces)})
    tokenizer.save_pretrained(folder)
    BertForMaskedLM(BertConfig(vocab_size=30522)).save_pretrained(folder)
    return load(str(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=["embedded", "bert-base"], choices=[*EMBEDDED_LMS, "bert-base"])
    parser.add_argument("--method", nargs="+", default=list(LEARN), choices=LEARN)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    torch.set_num_threads(1)
    print(f"{platform.processor() or platform.machine()}, one thread, torch {torch.__version__}")
    for name in options.model:
        print(name)
        with TemporaryDirectory() as folder:
            if name in EMBEDDED_LMS:
                work = Workload(load_compact(EMBEDDED_LMS[name]), 200, 100, 10, 56, iterations=10, epochs=2)
            else:
                work = Workload(bert_base(Path(folder)), 24, 12, 4, 8, iterations=3, epochs=1)
            for method in options.method:
                measure(method, work, options.repeats)


if __name__ == "__main__":
    main()
