"""Speed of the engine compared with one forward pass per prompt and state: CPU seconds in one run, one thread.

    python benches/search.py [--model FOLDER_OR_ID] [--relation prevent] [--ternary a_do_b_at]

Prints a row for every size: CPU seconds of both searches, their ratio, states, sequences, and the number of equal
tuples. Without an entity cap, both searches are exact and must return the same tuples. With the cap, the baseline, like
the reference code, is not exact.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertForMaskedLM

from benches.depth_first import DepthFirstSearch
from benches.depth_first import compatibility as plain_consistency
from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine import harvest as pipeline
from kgharvest.engine import parts, rescoring
from kgharvest.engine.entities import Entity, EntityVocabulary
from kgharvest.engine.filters import EntityFilter
from kgharvest.engine.language_models.batching import same_length_batches
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.prompts.prompt_set import PromptSet
from kgharvest.engine.prompts.strategies import weigh_prompts
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.search import BestFirstSearch
from kgharvest.engine.types import HarvestParams, WeightedPrompt, ignore

N_PROMPTS = 6
BARE_TOKENS = 1024  # tokens of a bare forward pass: enough to be efficient, few enough for the caches
RELATION_SETS = Path(__file__).resolve().parent.parent / "kgharvest" / "relation_sets"


@dataclass
class Setup:
    """An LM with the weighted prompts of a relation, and the plain model behind it."""

    lm: object
    plain: object
    weighted: list[WeightedPrompt]

    def __post_init__(self):
        self.templates = [PromptTemplate.parse(prompt.text) for prompt in self.weighted]
        self.prompts = [self.lm.encode_prompt(template) for template in self.templates]
        self.weights = [prompt.weight for prompt in self.weighted]
        self.prompt_set = PromptSet(tuple(self.prompts), tuple(self.weights))
        self.arity = self.templates[0].arity

    def ask(self, index, pattern, filled):
        query = self.lm.query(self.prompts[index], pattern, filled)
        return query.ids, query.position

    def start(self, params):
        """Return a search, and the ranker that counts its states."""
        ranker = parts.make_ranker(self.lm, self.prompt_set, params)
        vocabulary = EntityVocabulary(self.lm, EntityFilter(self.templates))
        return BestFirstSearch(ranker, vocabulary, params, lambda n_found: None), ranker


def cpu_seconds(work):
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def set_up(lm, plain, relation):
    templates = [PromptTemplate.parse(text) for text in relation["prompts"][:N_PROMPTS]]
    seeds = pipeline.encode_seeds(relation["seed_tuples"], lm)
    return Setup(lm, plain, weigh_prompts(lm, templates, seeds, HarvestParams(), ignore))


def compare_search(setup, n_candidates, cap):
    search, ranker = setup.start(HarvestParams(candidates=n_candidates, max_entity_repeats=cap))
    engine_s, _ = cpu_seconds(lambda: search.run([(1,) * setup.arity]))

    vocabulary = EntityVocabulary(setup.lm, EntityFilter(setup.templates))

    def is_entity(filled, token):
        entity = vocabulary.look_up((token,))
        others = [vocabulary.look_up((other,)) for other in filled]
        return isinstance(entity, Entity) and not vocabulary.rejects_beside(entity, others)

    found_tokens = {candidate.tokens for candidate in search.tuples}
    rows = []
    for prunes_first in (False, True):
        plain = DepthFirstSearch(
            setup.plain, setup.ask, setup.weights, is_entity, setup.lm.starts_entity, n_candidates, cap, prunes_first
        )
        seconds, tuples = cpu_seconds(partial(plain.run, setup.arity))
        rows.append((seconds, plain.n_forwards, len(found_tokens & {tokens for _, tokens in tuples})))
    return engine_s, ranker.n_states, len(found_tokens), rows


def compare_rescoring(setup, n_candidates):
    params = HarvestParams(candidates=n_candidates)
    search, _ = setup.start(params)
    search.run([(1,) * setup.arity, (2,) + (1,) * (setup.arity - 1)])
    engine_s, scored = cpu_seconds(
        lambda: rescoring.rescore(setup.lm, setup.prompt_set, search.tuples, params, lambda n_done: None)
    )

    def one_by_one():
        return {
            candidate.folded: max(
                plain_consistency(setup.plain, setup.ask, len(setup.weights), setup.weights, ids)
                for _, ids in rescoring.casings(setup.lm, setup.prompts, candidate)
            )
            for candidate in search.tuples
        }

    plain_s, plain_scores = cpu_seconds(one_by_one)
    largest = max(abs(scored_tuple.score - plain_scores[scored_tuple.entities]) for scored_tuple in scored)
    return engine_s, plain_s, largest


def compare_with_bare_forward(setup, n_states):
    """Return CPU seconds of a search of `n_states` states, and of bare forward passes on the same batches."""
    queries_of_batch = []
    vectors = setup.lm.vectors

    def spy(queries, batch_size, tick):
        queries_of_batch.append(list(dict.fromkeys(queries)))
        return vectors(queries, batch_size, tick)

    setup.lm.vectors = spy
    params = HarvestParams(state_budget=n_states)
    search, _ = setup.start(params)
    engine_s, _ = cpu_seconds(lambda: search.run([(1,) * setup.arity]))

    @torch.inference_mode()
    def bare():
        for queries in queries_of_batch:
            for rows in same_length_batches(queries, params.batch_size, BARE_TOKENS):
                setup.plain.base_model(input_ids=torch.tensor([queries[row].ids for row in rows]))

    return engine_s, cpu_seconds(bare)[0], sum(map(len, queries_of_batch))


def base_sized(tokenizer_folder, folder):
    """Save a BERT of base size with random weights and another LM's vocabulary."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), initializer_range=0.05)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--set", default="demo")
    parser.add_argument("--relation", default="prevent")
    parser.add_argument("--ternary", default="a_do_b_at")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = str(EMBEDDED_LMS.get(arguments.model, arguments.model))
    lm, plain = load(folder), AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
    relations = json.loads((RELATION_SETS / f"{arguments.set}.json").read_text())["relations"]
    by_name = {relation["name"]: relation for relation in relations}
    print(f"{arguments.model}: {sum(p.numel() for p in plain.parameters()):,} parameters, vocabulary {lm.vocab_size:,}")
    print("plain: Algorithm 1 as printed, for the N best first entities; pruned: also pruned at the first entity")
    print(f"{'search':28} engine  states  found | plain s  ratio forwards  same | pruned  ratio forwards  same")
    for name, n_candidates, cap in [
        (arguments.relation, 100, 10),
        (arguments.relation, 100, None),
        (arguments.relation, 1000, 10),
        (arguments.relation, 1000, None),
        (arguments.ternary, 100, 10),
        (arguments.ternary, 100, None),
    ]:
        setup = set_up(lm, plain, by_name[name])
        engine_s, states, n_found, rows = compare_search(setup, n_candidates, cap)
        columns = " | ".join(
            f"{seconds:7.2f} {seconds / engine_s:6.1f} {forwards:8} {same:5}" for seconds, forwards, same in rows
        )
        name_and_size = f"{name} N={n_candidates} cap={cap}"
        print(f"{name_and_size:28} {engine_s:6.3f} {states:7} {n_found:6} | {columns}", flush=True)
    for name in (arguments.relation, arguments.ternary):
        setup = set_up(lm, plain, by_name[name])
        engine_s, plain_s, worst = compare_rescoring(setup, 100)
        print(
            f"re-scoring {name}: engine {engine_s:.2f} s, plain {plain_s:.2f} s, ratio {plain_s / engine_s:.1f}, "
            f"largest difference {worst:.1e} nats"
        )
    with TemporaryDirectory() as big:
        base_sized(folder, big)
        setup = set_up(load(big), AutoModelForMaskedLM.from_pretrained(big).eval(), by_name[arguments.relation])
        engine_s, bare, n_sequences = compare_with_bare_forward(setup, 40)
        print(
            f"BERT-base size, {n_sequences} sequences: engine {engine_s:.1f} s, bare {bare:.1f} s, "
            f"ratio {engine_s / bare:.2f}"
        )


if __name__ == "__main__":
    main()
