"""Speedup by a second CPU thread, by the size of the LM.

    python benches/threads.py [--cpu-seconds 120] [--vocabulary 30522]

BERTs with random weights rank states of the search (six prompts of demo/prevent, entities of two tokens and one), in
the engine's batches. Sizes and numbers of threads alternate until the CPU seconds are used up; the fastest turn of each
counts. If a turn had fewer cores than threads, other programs disturbed it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.ranking import State, TokenRanker, layout

RELATION_SETS = Path(__file__).resolve().parent.parent / "kgharvest" / "relation_sets"
PATTERN = (2, 1)
SIZES = {  # layers, width, heads, states at a time: as in the engine, or fewer if that takes seconds
    "tiny": (4, 128, 2, 8),
    "mini": (4, 256, 4, 8),
    "small": (4, 512, 8, 8),
    "medium": (8, 512, 8, 8),
    "base": (12, 768, 12, 2),
    "large": (24, 1024, 16, 1),
}


class Turn(NamedTuple):
    """Wall-clock and CPU seconds per state."""

    wall: float
    cpu: float


class Subject(NamedTuple):
    lm: MaskedLM
    ranker: TokenRanker
    states: list[State]

    def rank(self, n_threads: int) -> Turn:
        torch.set_num_threads(n_threads)
        wall, cpu = time.perf_counter(), time.process_time()
        self.ranker.rank(self.states, lambda: None)
        n = len(self.states)
        return Turn((time.perf_counter() - wall) / n, (time.process_time() - cpu) / n)


def subject(lm: MaskedLM, prompts: list[str], n_states: int) -> Subject:
    encoded = [lm.encode_prompt(PromptTemplate.parse(prompt)) for prompt in prompts]
    ranker = TokenRanker(lm, encoded, [1 / len(encoded)] * len(encoded), 256)
    words = lm.starts_entity.nonzero()[0][:n_states]
    return Subject(lm, ranker, [State(PATTERN, (int(word),), layout(PATTERN, ())[1]) for word in words])


def random_bert(folder: str, layers: int, width: int, heads: int, vocabulary: int) -> MaskedLM:
    """Return a BERT of this size with random weights and the embedded LM's tokenizer."""
    AutoTokenizer.from_pretrained(EMBEDDED_LMS["embedded"]).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
    config = BertConfig(vocab_size=vocabulary, intermediate_size=4 * width, **sizes)
    BertForMaskedLM(config).save_pretrained(folder)
    return load(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu-seconds", type=float, default=120)
    parser.add_argument("--vocabulary", type=int, default=30522)
    arguments = parser.parse_args()
    relations = json.loads((RELATION_SETS / "demo.json").read_text())["relations"]
    prompts = next(relation["prompts"] for relation in relations if relation["name"] == "prevent")
    subjects = {name: subject(load_compact(folder), prompts, 8) for name, folder in EMBEDDED_LMS.items()}
    for name, (layers, width, heads, n_states) in SIZES.items():
        with TemporaryDirectory() as folder:
            lm = random_bert(folder, layers, width, heads, arguments.vocabulary)
        subjects[name] = subject(lm, prompts, n_states)
    best: dict[tuple[str, int], Turn] = {}
    while not best or time.process_time() < arguments.cpu_seconds:
        for name, n_threads in product(subjects, (1, 2)):
            for _ in range(1 if name in ("base", "large") else 5):
                turn = subjects[name].rank(n_threads)
                best[name, n_threads] = min(turn, best.get((name, n_threads), turn))
    print("LM, weights of its layers; for 1 and 2 threads: states/s, CPU ms/state, cores used; speedup")
    for name, each in subjects.items():
        n_weights = sum(weights.numel() for weights in each.lm._network.encoder.parameters())
        one, two = turns = best[name, 1], best[name, 2]
        columns = "".join(f"{1 / turn.wall:9.1f} {1000 * turn.cpu:8.2f} {turn.cpu / turn.wall:5.2f};" for turn in turns)
        print(f"{name:14} {n_weights / 1e6:6.1f} M:{columns} {one.wall / two.wall:5.2f}", flush=True)


if __name__ == "__main__":
    main()
