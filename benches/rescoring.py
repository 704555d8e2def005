"""Re-scoring compared with reading every casing: sequences, CPU seconds, memory, and largest difference of scores.

    python benches/rescoring.py [--size small/base] [--relations used_for ...] [--tokens 1] [--kept K] [--memory]

Embedded LMs are uncased, so the LM here is a cased variant of the embedded LM: most words also have a token in title
case, with the same embedding plus noise, and are more likely in one of the two cases. `base` has these tokens in a
network of BERT-base size (and its vocabulary size) with random weights.

`all`: distinct sequences of all casings of all candidates, which the LM reads without pruning, and CPU seconds for them
(not with `--size base`). `--memory` adds the growth of the resident memory to its peak, after one-time allocations for
the first tuple: here, and with one forward pass per prompt and state.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM, BertTokenizerFast

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benches.depth_first import compatibility as plain_consistency
from benches.reference_search import peak_mib, reset_peak
from benches.search import RELATION_SETS, set_up
from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine import parts
from kgharvest.engine.harvest import rank, rescored
from kgharvest.engine.language_models.base import filled_tokens
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.rescoring import casings
from kgharvest.engine.scoring import compatibilities, consistency
from kgharvest.engine.search import merge_found
from kgharvest.engine.types import HarvestParams, ignore

RUNS = [("used_for", 1000), ("capital_of", 1000), ("place_for", 1000), ("a_do_b_at", 1000), ("used_for", 100)]
BASE_VOCABULARY = 28_996  # of bert-base-cased
IN_BOTH_CASES, CASE_NATS, NOISE = 0.7, 3.0, 0.1
N_PLAIN = 20  # tuples that show the memory of the plain method


def cased_variant(folder, size):
    """Save a cased LM in `folder`: see the module's docstring."""
    source = EMBEDDED_LMS["embedded"]
    number_of = json.loads((source / "tokenizer.json").read_text())["model"]["vocab"]
    tokens = sorted(number_of, key=number_of.get)
    rng = np.random.default_rng(0)
    in_both = [
        number
        for number, token in enumerate(tokens)
        if token.isalpha() and token.islower() and (len(token) == 1 or rng.random() < IN_BOTH_CASES)
    ]
    vocabulary = tokens + [tokens[number].title() for number in in_both]
    Path(folder, "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(vocab=str(Path(folder, "vocab.txt")), do_lower_case=False).save_pretrained(folder)
    torch.manual_seed(0)
    if size == "base":
        BertForMaskedLM(BertConfig(vocab_size=BASE_VOCABULARY, initializer_range=0.05)).save_pretrained(folder)
        return
    model = AutoModelForMaskedLM.from_pretrained(source, dtype=torch.float32)
    old, bias = model.get_input_embeddings().weight.data.clone(), model.cls.predictions.bias.data.clone()
    model.resize_token_embeddings(len(vocabulary), mean_resizing=False)
    weights = model.get_input_embeddings().weight.data
    weights[len(tokens) :] = old[in_both] + NOISE * old.std() * torch.randn(len(in_both), old.shape[1])
    shift = CASE_NATS * torch.randn(len(in_both))
    model.cls.predictions.bias.data[: len(tokens)] = bias
    model.cls.predictions.bias.data[len(tokens) :] = bias[in_both] + shift
    model.save_pretrained(folder)


def cpu_seconds(work):
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def all_sequences(setup, candidates):
    """Return the number of distinct sequences of all casings."""
    queries = set()
    for candidate in candidates:
        for _, ids in casings(setup.lm, setup.prompts, candidate):
            pattern, tokens = tuple(map(len, ids)), filled_tokens(setup.lm, ids)
            for n_filled in range(len(tokens)):
                queries.update(setup.lm.query(prompt, pattern, tokens[:n_filled]) for prompt in setup.prompts)
    return len(queries)


def all_scores(setup, candidates, alpha):
    """Return the largest consistency over all casings, by entities."""
    variants = [
        (candidate.folded, ids) for candidate in candidates for _, ids in casings(setup.lm, setup.prompts, candidate)
    ]
    fits = compatibilities(setup.lm, setup.prompts, [ids for _, ids in variants], alpha, 256, lambda: None)
    best: dict[tuple[str, ...], float] = {}
    for (entities, _), score in zip(variants, consistency(fits, np.array(setup.weights)).tolist(), strict=True):
        best[entities] = max(score, best.get(entities, -np.inf))
    return best


def candidates_of(setup, params):
    question = parts.Question(setup.prompt_set, tuple(setup.templates), params)
    searches = parts.search_parts(question)
    found = [part.do(setup.lm, question, lambda n_done: None) for part in searches]
    return question, merge_found([part.patterns for part in searches], found).candidates


def compare(folder, size, relation, params, with_memory):
    """Print a row, and return the ratio of sequences."""
    setup = set_up(load(folder), None, relation)
    question, candidates = candidates_of(setup, params)
    setup.lm.n_read["sequences"] = 0
    seconds, scored = cpu_seconds(lambda: rescored(setup.lm, question, candidates, parts.InTurn(ignore)))
    n_read, n_all, ranked = setup.lm.n_read["sequences"], all_sequences(setup, candidates), rank(scored, params)
    row = f"{relation['name']:12} {params.candidates:6} {len(candidates):6} {len(ranked):6} {n_all:8,} {n_read:8,}"
    row += f" {n_all / n_read:6.1f} {seconds:8.2f}"
    if size == "small":
        all_seconds, best = cpu_seconds(lambda: all_scores(setup, candidates, params.alpha))
        row += f" {all_seconds:8.2f} {all_seconds / seconds:6.1f}"
        row += f" {max(abs(scored_tuple.score - best[scored_tuple.entities]) for scored_tuple in scored):10.1e}"
    if with_memory:
        for method in (engine_growth, plain_growth):
            row += f" {in_own_process(method, folder, relation, candidates):7.1f}"
    print(row, flush=True)
    return n_all / n_read


def engine_growth(folder, relation, candidates):
    setup = set_up(load(folder), None, relation)
    question = parts.Question(setup.prompt_set, tuple(setup.templates), HarvestParams())
    return growth_of(lambda some: rescored(setup.lm, question, some, parts.InTurn(ignore)), candidates)


def plain_growth(folder, relation, candidates):
    """Return the growth for one forward pass per prompt and state. More tuples would not change it."""
    setup = set_up(load(folder), AutoModelForMaskedLM.from_pretrained(folder).eval(), relation)

    def score(some):
        for candidate in some:
            ids = tuple(map(setup.lm.encode_entity, candidate.surface))
            plain_consistency(setup.plain, setup.ask, len(setup.weights), setup.weights, ids)

    return growth_of(score, candidates[:N_PLAIN])


def growth_of(score, candidates):
    """Return the growth of the resident memory to its peak in MiB, after one-time allocations for the first tuple."""
    score(candidates[:1])
    reset_peak()
    memory = peak_mib()
    score(candidates)
    return peak_mib() - memory


def in_own_process(work, *arguments):
    with multiprocessing.get_context("spawn").Pool(1, torch.set_num_threads, (1,)) as pool:
        return pool.apply(work, arguments)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=["small", "base"], default="small")
    parser.add_argument("--relations", nargs="+")
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--kept", type=int)
    parser.add_argument("--memory", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    relations = json.loads((RELATION_SETS / "demo.json").read_text())["relations"]
    by_name = {relation["name"]: relation for relation in relations}
    runs = [run for run in RUNS if not arguments.relations or run[0] in arguments.relations]
    print(
        f"{'relation':12} {'N':>6} {'found':>6} {'tuples':>6} {'all':>8} {'read':>8} {'ratio':>6} {'CPU-s':>8} "
        + (f"{'all':>8} {'ratio':>6} {'difference':>10} " if arguments.size == "small" else "")
        + (f"{'MiB':>7} {'plain':>7}" if arguments.memory else "")
    )
    with TemporaryDirectory() as folder:
        cased_variant(folder, arguments.size)
        ratios = []
        for name, n_candidates in runs:
            params = HarvestParams(
                candidates=n_candidates, max_entity_tokens=arguments.tokens, max_tuples=arguments.kept
            )
            ratios.append(compare(folder, arguments.size, by_name[name], params, arguments.memory))
    print(f"mean ratio of sequences {np.mean(ratios):.1f}")


if __name__ == "__main__":
    main()
