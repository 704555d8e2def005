"""Order of the prompt systems on an LM that knows facts of LAMA, compared with the order that their papers report.

    python benches/prompt_systems.py --data FOLDER_WITH_LAMA [--lm FOLDER] [--records FILE] [--methods manual lpaqa ...]

Trains a small BERT on some facts of the ten relations, in the wording of LPAQA's mined prompts and without noise, so
that it answers these wordings and few others. The manual and the paraphrased prompts, which query all facts, are held
out. Then every method learns from the training facts, chooses on dev, and is measured on test. Each is also measured on
the LM with random weights. Prints the table of `probe`, and the papers' orderings with their intervals over relations.

With --lm and --records, a run continues earlier runs, so the methods can be measured a few at a time.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benches.installation import set_up_django

set_up_django()

from kgharvest.contrib.probing.probes.document import probe_document
from kgharvest.contrib.probing.probes.facts import PARTS, ProbeRelation, relation_type
from kgharvest.contrib.probing.probes.measurement import cells_of, measure, probe_task
from kgharvest.contrib.probing.probes.tables import summary_table
from kgharvest.contrib.probing.prompt_learning.learners import learn
from kgharvest.contrib.probing.prompt_learning.registry import METHODS, LearningBudget
from kgharvest.embedded_lm.train import Recipe, save, train
from kgharvest.embedded_lm.world import Relation, parse_phrasing
from kgharvest.engine.language_models.base import EncodedPrompt
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.probing import probe
from kgharvest.engine.prompt_learning import lpaqa
from kgharvest.engine.prompts.prompt_set import PromptSetAnswerer
from kgharvest.statistics.paired_tests import PairedDifference, paired_difference
from kgharvest.tables.formats import terminal_text

N_MINED = 12  # mined prompts that the LM learns from
N_PARAPHRASED = 8  # paraphrased prompts that query the LM, in addition to the manual one
BASELINES = ("majority", "manual")
FAR = 0.3  # minimum difference in P@1 that counts as far above


class Ordering(NamedTuple):
    """better, worse: methods, or a method and its control. relation: how far `better` should be above `worse`."""

    better: str
    relation: str
    worse: str


# LAMA has one manual prompt per relation, which is therefore the best single prompt.
ORDERINGS = [
    Ordering("lpaqa", ">=", "manual"),
    Ordering("autoprompt", ">", "manual"),
    Ordering("soft", ">=", "autoprompt"),
    Ordering("soft-deep", ">=", "soft"),
    Ordering("bertese", ">=", "manual"),
    Ordering("bertese-continuous", ">", "manual"),
]
HOLDS: dict[str, Callable[[PairedDifference], bool]] = {
    ">=": lambda estimate: estimate.difference >= 0,
    ">": lambda estimate: estimate.difference > 0 and estimate.p < 0.05,
    ">>": lambda estimate: estimate.difference > FAR and estimate.p < 0.05,
}
PLAIN_WORDS = re.compile(r"[a-z]+( [a-z]+)?")  # one or two words; each becomes a token


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def facts_of(folder: Path, n: int) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return at most `n` facts of train and of test, and half as many of dev, one per subject, in lower case."""
    chosen, seen = {}, set()
    for part in PARTS:
        pairs = [(line["sub"].lower(), line["obj"].lower()) for line in read(folder / f"{part}.jsonl")]
        random.Random(0).shuffle(pairs)
        kept = []
        for subject, obj in pairs:
            if (
                subject not in seen
                and PLAIN_WORDS.fullmatch(subject)
                and re.fullmatch("[a-z]+", obj)
                and subject != obj
            ):
                seen.add(subject)
                kept.append((subject, obj))
        chosen[part] = tuple(kept[: n // 2 if part == "dev" else n])
    return chosen


def templates(path: Path) -> list[str]:
    """Return the prompts of a file that contain each slot once, the heaviest first."""
    lines = sorted(read(path), key=lambda line: -line.get("weight", 0.0))
    texts = [line["template"].replace("[X]", "<ENT0>").replace("[Y]", "<ENT1>").lower() for line in lines]
    texts = [re.sub("<ent([01])>", r"<ENT\1>", text) for text in texts]
    return [text for text in dict.fromkeys(texts) if text.count("<ENT0>") == text.count("<ENT1>") == 1]


def relations_of(data: Path, n_facts: int) -> tuple[list[Relation], list[ProbeRelation]]:
    """Return the relations that the LM learns, and the relations that it is probed with."""
    known, relations = [], []
    for folder in sorted((data / "facts").iterdir()):
        facts = facts_of(folder, n_facts)
        manual, mined, paraphrased = (
            templates(data / "prompts" / kind / f"{folder.name}.jsonl") for kind in ("manual", "mined", "paraphrased")
        )
        learned = [text for text in mined if text not in (*manual, *paraphrased)][:N_MINED]
        phrasings = tuple(parse_phrasing(text) for text in learned)
        held_out = tuple(parse_phrasing(text) for text in (*manual, *paraphrased))
        every = tuple(pair for part in PARTS for pair in facts[part])
        known.append(Relation(folder.name, held_out[0].first, phrasings, held_out, every, ()))
        relations.append(ProbeRelation(folder.name, (*manual, *paraphrased[:N_PARAPHRASED]), facts))
    return known, relations


def trained(known: list[Relation], folder: Path, steps: int) -> None:
    recipe = Recipe(layers=2, hidden=128, heads=4, steps=steps, noise_rate=0.0)
    with tqdm(total=steps, desc="training", unit="step") as bar:
        model = train(known, recipe, 0, lambda step, loss: (bar.set_postfix(loss=f"{loss:.2f}"), bar.update()))
    save(model, known, folder)


def probe_records(
    lm: MaskedLM, control: MaskedLM, relations: list[ProbeRelation], method: str, budget: LearningBudget
) -> Iterator[dict]:
    """Yield a record of the method for each relation, and one of its control: the same LM before training."""
    tasks = [probe_task(lm, relation) for relation in relations]
    for cell in cells_of([method], tasks, with_control=True):
        for measurement in measure(control if cell.is_control else lm, cell, partial(learn, budget=budget)):
            yield measurement.record()


def measured(
    arguments: argparse.Namespace, lm: MaskedLM, control: MaskedLM, relations: list[ProbeRelation]
) -> list[dict]:
    """Return the records of all methods, starting with those of an earlier run."""
    records = read(arguments.records) if arguments.records and arguments.records.is_file() else []
    missing = [method for method in arguments.methods if method not in {record["method"] for record in records}]
    for method in missing:
        budget = LearningBudget(arguments.iterations, arguments.epochs)
        new = list(probe_records(lm, control, relations, method, budget))
        p1 = np.mean([record["p1"] for record in new if not record["is_control"]])
        print(f"{method:>20} P@1 {p1:.3f}", flush=True)
        records += new
        if arguments.records:
            arguments.records.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return records


def p1_by_method(records: list[dict]) -> dict[str, dict[str, float]]:
    """Return P@1 by method (or method and control) and by relation."""
    p1 = defaultdict(dict)
    for record in records:
        p1[f"{record['method']}{', random LM' if record['is_control'] else ''}"][record["relation"]] = record["p1"]
    return p1


def orderings(p1: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield a line for each ordering whose methods were measured."""
    learners = [method for method in METHODS if method not in BASELINES and method in p1]
    far = [Ordering(method, ">>", worse) for worse in ("majority", "{}, random LM") for method in ("manual", *learners)]
    for ordering in [
        *ORDERINGS,
        *(ordering._replace(worse=ordering.worse.format(ordering.better)) for ordering in far),
    ]:
        if ordering.better in p1 and ordering.worse in p1:
            yield verdict(ordering, p1[ordering.better], p1[ordering.worse])


def best_rewrite(lm: MaskedLM, relation: ProbeRelation) -> float:
    """Return P@1 on test of the manual prompt, with at most one word replaced to make it best on train.

    Tries all words of the given prompts: the minimum that a rewriter could find, one word at a time.
    """
    task = probe_task(lm, relation)
    words = {token for prompt in task.given for ids in prompt.segments for token in ids if lm.continues_entity[token]}
    best = lpaqa.top1(lm, [task.manual, *replacing_a_word(lm, task.manual, sorted(words))], task.train)
    return probe(PromptSetAnswerer(lm, best), task.test).precision_at(1)


def replacing_a_word(lm: MaskedLM, prompt: EncodedPrompt, words: list[int]) -> Iterator[EncodedPrompt]:
    for index, segment in enumerate(prompt.segments):
        for position in (position for position, token in enumerate(segment) if lm.continues_entity[token]):
            for word in words:
                rewritten = (*segment[:position], word, *segment[position + 1 :])
                yield prompt._replace(segments=(*prompt.segments[:index], rewritten, *prompt.segments[index + 1 :]))


def verdict(ordering: Ordering, better: dict[str, float], worse: dict[str, float]) -> str:
    """Return the difference over relations, its interval, p, and whether the ordering holds."""
    names = sorted(better)
    differences = np.array([better[name] - worse[name] for name in names])
    estimate = paired_difference(differences, np.random.default_rng(0))
    interval = f"{estimate.low:+.3f} to {estimate.high:+.3f}" if estimate.low is not None else estimate.reason
    outcome = "holds" if HOLDS[ordering.relation](estimate) else f"does not hold: {why_not(names, differences)}"
    return f"{' '.join(ordering):55} {estimate.difference:+.3f} ({interval}), p = {estimate.p:.3f}: {outcome}"


def why_not(names: list[str], differences: NDArray[np.float64]) -> str:
    lowest = differences.argmin()
    n_above, n_below = (differences > 0).sum(), (differences < 0).sum()
    return (
        f"above in {n_above}, below in {n_below} of {len(names)}, most in {names[lowest]} ({differences[lowest]:+.3f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with facts/ and prompts/")
    parser.add_argument("--facts", type=int, default=50, help="number of facts of train and of test, per relation")
    parser.add_argument("--steps", type=int, default=1500, help="number of training steps of the LM")
    # Mined and paraphrased prompts would need their own relations: the LM is trained on the mined prompts.
    methods = [name for name in METHODS if not name.endswith(("mined", "paraphrased"))]
    parser.add_argument("--methods", nargs="+", choices=methods, default=methods)
    parser.add_argument("--iterations", type=int, default=60, help="number of iterations of AutoPrompt")
    parser.add_argument("--epochs", type=int, default=8, help="number of epochs of soft prompts and BERTese")
    parser.add_argument("--lm", type=Path, help="folder to save the LM in, or to load it from if it exists")
    parser.add_argument("--records", type=Path, help="file to save records in; methods in it are not measured again")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    known, relations = relations_of(arguments.data, arguments.facts)
    folder = arguments.lm or Path(tempfile.mkdtemp(prefix="kgharvest-prompt-systems-"))
    if not (folder / "config.json").is_file():
        trained(known, folder, arguments.steps)
    lm, control = load_compact(folder), load_compact(folder, random_seed=0)
    records = measured(arguments, lm, control, relations)
    types = {
        relation.name: relation_type([pair for part in PARTS for pair in relation.facts[part]])
        for relation in relations
    }
    print(terminal_text(summary_table(probe_document(records, types))))
    p1 = p1_by_method(records)
    print(*orderings(p1), sep="\n")
    if "manual" in p1:
        rewritten = {
            relation.name: best_rewrite(lm, relation) for relation in tqdm(relations, desc="rewriting", leave=False)
        }
        print(verdict(Ordering("one word replaced", ">=", "manual"), rewritten, p1["manual"]))


if __name__ == "__main__":
    main()
