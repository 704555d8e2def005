"""Accuracy of causal LMs on ten relations of common facts (common_facts.json), with and without worked examples.

    python benches/common_facts.py [--model smollm2] [--prompts zero few hand] [--setting human] [--relation NAME ...]

zero: the instruction without examples. few: worked examples, as in harvests. hand: each of the hand-written few-shot
prompts with the same seed tuples; "hand best" is the largest figure of each relation over these prompts. tail: share of
the first 20 heads, none of them a seed, whose most likely tail (greedy, to the line end) is correct. P@10, P@50: share
of correct tuples among the best 10 and 50 of a harvest, without seeds.
Goals for smollm2, few: mean tail at least .5, P@10 at least .4, P@50 at least .25, each at least .7 of "hand best".
The prompts, seed tuples, and facts were fixed before the form of the examples was chosen, and the hand-written prompts
before they were measured.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import kgharvest
from kgharvest.engine.harvest import harvest_prepared, prepare
from kgharvest.engine.language_models.causal import CausalLM
from kgharvest.engine.parts import InTurn
from kgharvest.engine.prompts import strategies
from kgharvest.engine.prompts.prompt_set import PromptSet
from kgharvest.engine.types import HarvestParams, HarvestSpec, ignore

RELATIONS = json.loads((Path(__file__).parent / "common_facts.json").read_text(encoding="utf-8"))
N_HEADS, LONGEST_TAIL = 20, 6  # tail in tokens
N_HAND = 3  # hand-written prompts per relation


def hand_written(name: str, variant: int) -> str:
    """Return a hand-written prompt of the relation that shows the seed tuples."""
    relation = RELATIONS[name]
    title, example = (relation["hand_prompts"][variant][key] for key in ("title", "example"))
    shown = [example.replace("<ENT0>", head).replace("<ENT1>", tail) for head, tail in relation["seed_tuples"]]
    return "\n\n".join(filter(None, [title, *shown, example]))


def best_tails(lm: CausalLM, prompts: PromptSet, heads: list[str]) -> list[str]:
    """Return the greedy tail of each head, by the weighted mean of the prompts' log-probabilities."""
    ids = [lm.encode_entity(head) for head in heads]
    tails: list[tuple[int, ...]] = [() for _ in heads]
    open_rows = list(range(len(heads)))
    weights = torch.tensor(prompts.weights)
    for _ in range(LONGEST_TAIL):
        queries = [
            lm.query(prompt, (len(ids[row]), LONGEST_TAIL), ids[row] + lm.entity_end + tails[row])
            for row in open_rows
            for prompt in prompts.prompts
        ]
        logits = lm.logits(lm.vectors(queries, 256, lambda: None)).view(len(open_rows), len(weights), -1)
        best = torch.einsum("hpv,p->hv", torch.log_softmax(logits, dim=-1), weights).argmax(dim=-1).tolist()
        for row, token in zip(open_rows, best, strict=True):
            tails[row] += (token,)
        open_rows = [row for row in open_rows if tails[row][-1:] != lm.entity_end]
        if not open_rows:
            break
    return [lm.canonical_texts([tail[:-1]])[0] or "" for tail in tails]


def measure(lm: CausalLM, name: str, kind: str, setting: str, params: HarvestParams, only_tails: bool) -> list[float]:
    relation = RELATIONS[name]
    seeds = tuple(map(tuple, relation["seed_tuples"]))
    is_by_hand = kind.startswith("hand")
    prompts = (hand_written(name, int(kind[-1]) - 1),) if is_by_hand else tuple(relation["initial_prompts"])
    strategies.MOST_EXAMPLES = 0 if kind == "zero" else 8
    setting = "human" if is_by_hand else setting  # a prompt that shows examples has no other orders
    start = time.process_time()
    prepared = prepare(HarvestSpec(name, prompts, seeds, setting, params=params), lm)
    true = {(head.casefold(), tail.casefold()) for head, tail in [*relation["facts"], *seeds]}
    seed_heads = {head for head, _ in seeds}
    heads = [head for head in dict.fromkeys(head for head, _ in relation["facts"]) if head not in seed_heads][:N_HEADS]
    tails = best_tails(lm, prepared.prompts.prompt_set, heads)
    figures = [np.mean([(head.casefold(), tail.casefold()) in true for head, tail in zip(heads, tails, strict=True)])]
    first = ""
    if not only_tails:
        result = harvest_prepared(prepared, params, lm, InTurn(ignore))
        shown = {tuple(entity.casefold() for entity in seed) for seed in seeds}
        tuples = [found.entities for found in result.tuples if found.entities not in shown]
        figures += [sum(found in true for found in tuples[:n]) / n for n in (10, 50)]
        first = ", ".join("/".join(found) for found in tuples[:6])
    text = prepared.prompts.weighted[0].text
    marks = {"[user]": "chat", "(1)": "lines", "\n": "sentences"}  # the first mark in the text shows its form
    form = next((form for mark, form in marks.items() if mark in text), "none")
    print(
        f"{name:17}{kind:7}{form:10}", *(f"{figure:6.2f}" for figure in figures),
        f"{time.process_time() - start:6.0f} s  {first}", flush=True,
    )  # fmt: skip
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--prompts", nargs="+", choices=("zero", "few", "hand"), default=["zero", "few", "hand"])
    parser.add_argument("--setting", default="human")
    parser.add_argument("--relation", nargs="+", choices=RELATIONS, default=list(RELATIONS))
    parser.add_argument("--candidates", type=int, default=900)
    parser.add_argument("--max-entity-tokens", type=int, default=2)
    parser.add_argument("--only-tails", action="store_true", help="without harvests")
    arguments = parser.parse_args()
    lm = kgharvest.load_lm(arguments.model, dtype=arguments.dtype)
    params = HarvestParams(candidates=arguments.candidates, max_entity_tokens=arguments.max_entity_tokens)
    print("relation         prompts, form       tail   P@10   P@50")
    by_kind = {}
    for kind in arguments.prompts:
        kinds = [f"hand {variant}" for variant in range(1, N_HAND + 1)] if kind == "hand" else [kind]
        measured = [
            [measure(lm, name, variant, arguments.setting, params, arguments.only_tails) for variant in kinds]
            for name in arguments.relation
        ]  # (R, K, F): relations, kinds, figures
        for variant, figures in zip(kinds, np.mean(measured, axis=0), strict=True):
            show_mean(variant, figures)
        by_kind[kind] = np.mean(np.max(measured, axis=1), axis=0)
    if "hand" in by_kind:
        show_mean("hand best", by_kind["hand"])
        if "few" in by_kind:
            show_mean("few / hand best", by_kind["few"] / by_kind["hand"])


def show_mean(kind: str, figures: np.ndarray) -> None:
    print(f"{'mean':17}{kind:17}", *(f"{figure:6.2f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main()
