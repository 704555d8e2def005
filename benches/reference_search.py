"""Comparison of the engine with the search of BertNet's reference code, on one LM with the same prompts, one thread.

    python benches/reference_search.py [--relations prevent a_do_b_at] [--sizes 100 1000] [--tokens 1]

The reference searches depth first, with one forward pass per prompt and state. It keeps the N best first entities, five
entities in each later slot, and one heap for all token counts, pruned by the heap's worst tuple. A word occurs in at
most five tuples of the heap, counted in the order of visits. This file reimplements the search from that description.
Both searches use the same filters and rank by the same distribution, so their lists are comparable. `true` counts
tuples of the exact N best (under the engine's loose cap). `known` counts the facts of the embedded LM's world among the
list's first 100 tuples by consistency. The engine's list is capped strictly after re-scoring; `engine, 3 N` proposes as
many tuples as `--max-tuples N`.

Prints CPU seconds, sequences read by the LM, and growth of the resident memory to its peak in MiB (Linux). Each run has
its own process, which first returns free memory to the system.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import heapq
import json
import multiprocessing
import re
import sys
import time
from collections import Counter
from itertools import product
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from transformers import AutoModelForMaskedLM

from benches.search import RELATION_SETS, set_up
from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.embedded_lm.world import load_world
from kgharvest.engine import parts, rescoring
from kgharvest.engine.entities import Entity, EntityVocabulary
from kgharvest.engine.filters import EntityFilter
from kgharvest.engine.harvest import rank
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.search import Candidate
from kgharvest.engine.types import HarvestParams

LATER_ENTITIES = 5  # kept in every slot except the first
WORD_REPEATS = 5
TOP = 100  # tuples of the list that are compared with the facts


class ReferenceSearch:
    """Depth-first search over entities. Each entity is the best of a depth-first search over its tokens."""

    def __init__(self, setup, n_tuples, max_entity_tokens):
        self.setup, self.n_tuples, self.max_entity_tokens = setup, n_tuples, max_entity_tokens
        self.vocabulary = EntityVocabulary(setup.lm, EntityFilter(setup.templates))
        self.starts, self.continues = (
            torch.from_numpy(tokens) for tokens in (setup.lm.starts_entity, setup.lm.continues_entity)
        )
        self.heap: list[tuple[float, tuple[str, ...], Candidate]] = []
        self.repeats: Counter[str] = Counter()
        self.n_sequences = 0

    def run(self):
        """Return the tuples, best first."""
        for pattern in product(range(1, self.max_entity_tokens + 1), repeat=self.setup.arity):
            self.visit(pattern, (), (), ())
        return [candidate for _, _, candidate in sorted(self.heap, key=lambda entry: -entry[0])]

    def visit(self, pattern, tokens, costs, entities):
        if len(entities) == len(pattern):
            self.push(Candidate(pattern, tokens, tuple(sorted(costs, reverse=True)), entities, True))
            return
        k = LATER_ENTITIES if entities else self.n_tuples
        for entity, ids, entity_costs in self.best_entities(pattern, tokens, costs, entities, k):
            if self.is_hopeless((*costs, *entity_costs)):
                return
            if all(self.repeats[word] < WORD_REPEATS for word in entity.words):
                self.visit(pattern, tokens + ids, (*costs, *entity_costs), (*entities, entity))

    def best_entities(self, pattern, tokens, costs, others, k):
        """Return the `k` entities of the next slot whose least likely token is most likely: (entity, ids, costs)."""
        n_tokens = pattern[len(others)]
        best: list[tuple[float, int, tuple]] = []

        def fill(ids, id_costs):
            logprobs = self.logprobs(pattern, tokens + ids)
            admissible = self.continues if ids else self.starts
            values, order = logprobs.masked_fill(~admissible, -torch.inf).sort(descending=True)
            for value, token in zip(values.tolist(), order.tolist(), strict=True):
                so_far = (*id_costs, -value)
                if (len(best) == k and -max(so_far) <= best[0][0]) or self.is_hopeless((*costs, *so_far)):
                    return
                if len(ids) + 1 < n_tokens:
                    fill((*ids, token), so_far)
                elif entity := self.entity((*ids, token), others):
                    heapq.heappush(best, (-max(so_far), -len(best), (entity, (*ids, token), so_far)))
                    if len(best) > k:
                        heapq.heappop(best)

        fill((), ())
        return [found for _, _, found in sorted(best, reverse=True)]

    def entity(self, ids, others):
        entity = self.vocabulary.look_up(ids)
        return entity if isinstance(entity, Entity) and not self.vocabulary.rejects_beside(entity, others) else None

    @torch.no_grad()
    def logprobs(self, pattern, filled):
        mean = 0
        for index, weight in enumerate(self.setup.weights):
            ids, position = self.setup.ask(index, pattern, filled)
            mean = mean + weight * self.setup.plain(torch.tensor([ids])).logits[0, position]
            self.n_sequences += 1
        return torch.log_softmax(mean, dim=-1)

    def is_hopeless(self, costs):
        return len(self.heap) == self.n_tuples and -max(costs) < self.heap[0][0]

    def push(self, candidate):
        if any(candidate.folded == other for _, other, _ in self.heap):
            return
        heapq.heappush(self.heap, (candidate.mtl, candidate.folded, candidate))
        self.repeats.update(words_of(candidate))
        if len(self.heap) > self.n_tuples:
            self.repeats.subtract(words_of(heapq.heappop(self.heap)[2]))


def words_of(candidate):
    return {word for entity in candidate.entities for word in entity.words}


# Runs, each in its own process


def reference(setup, n_tuples, max_entity_tokens):
    search = ReferenceSearch(setup, n_tuples, max_entity_tokens)
    return search.run(), lambda: search.n_sequences


def engine(setup, n_tuples, max_entity_tokens):
    params = HarvestParams(candidates=n_tuples, max_entity_tokens=max_entity_tokens, pattern_budget="shared")
    question = parts.Question(setup.prompt_set, tuple(setup.templates), params)
    [search] = parts.search_parts(question)
    found = search.do(setup.lm, question, lambda n_found: None)
    return found.candidates, lambda: found.n_states * len(setup.prompts)


def measure(search, lm_name, relation, n_tuples, max_entity_tokens):
    """Return CPU seconds, sequences, MiB, and the scored tuples in the order of the search."""
    torch.set_num_threads(1)
    folder = EMBEDDED_LMS.get(lm_name, Path(lm_name))
    lm = load_compact(folder) if lm_name in EMBEDDED_LMS else load(str(folder))  # as in harvests
    setup = set_up(lm, AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval(), relation)
    search(setup, 1, 1)  # warm up: one-time allocations
    reset_peak()
    memory, start = peak_mib(), time.process_time()
    candidates, n_sequences = search(setup, n_tuples, max_entity_tokens)
    seconds, growth = time.process_time() - start, peak_mib() - memory
    scored = rescoring.rescore(setup.lm, setup.prompt_set, candidates, HarvestParams(), lambda n_done: None)
    score_of = {scored_tuple.entities: scored_tuple for scored_tuple in scored}
    return seconds, n_sequences(), growth, [score_of[candidate.folded] for candidate in candidates]


def reset_peak():
    """Reset the peak of the resident memory to the current use."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # proc(5)


def peak_mib():
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def in_own_process(*arguments):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, arguments)


def compare(lm_name, relation, facts, n_tuples, max_entity_tokens):
    reference_run = in_own_process(reference, lm_name, relation, n_tuples, max_entity_tokens)
    engine_run = in_own_process(engine, lm_name, relation, n_tuples, max_entity_tokens)
    larger_run = in_own_process(engine, lm_name, relation, 3 * n_tuples, max_entity_tokens)
    exact = {scored.entities for scored in engine_run[3]}
    for name, (seconds, n_sequences, growth, tuples), params in [
        ("reference", reference_run, HarvestParams(max_entity_repeats=None)),
        ("engine", engine_run, HarvestParams()),
        ("engine, 3 N", larger_run, HarvestParams(max_tuples=n_tuples)),
    ]:
        ranked = rank(tuples, params)
        n_known = len({scored.entities for scored in ranked[:TOP]} & facts)
        n_true = len({scored.entities for scored in tuples[:n_tuples]} & exact)
        ratio = reference_run[0] / seconds
        print(
            f"{relation['name']:16} {n_tuples:5} {max_entity_tokens:6} {name:12} {seconds:8.2f} {ratio:6.1f} "
            f"{n_sequences:9,} {len(tuples):6} {n_true:6} {len(ranked):6} {n_known:6} {growth:7.1f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--relations", nargs="+", default=["prevent", "a_do_b_at"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 1000])
    parser.add_argument("--tokens", nargs="+", type=int, default=[1])
    arguments = parser.parse_args()
    relations = json.loads((RELATION_SETS / "demo.json").read_text())["relations"]
    by_name = {relation["name"]: relation for relation in relations}
    facts_of = {relation.name: set(relation.facts) for relation in load_world()}
    print(
        f"{'relation':16} {'N':>5} {'tokens':>6} {'':12} {'CPU-s':>8} {'ratio':>6} {'sequences':>9} {'found':>6} "
        f"{'true':>6} {'list':>6} {'known':>6} {'MiB':>7}"
    )
    for n_tokens, name, n_tuples in product(arguments.tokens, arguments.relations, arguments.sizes):
        compare(arguments.model, by_name[name], facts_of[name], n_tuples, n_tokens)


if __name__ == "__main__":
    main()
