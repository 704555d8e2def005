"""The prompt systems on an LM that knows facts of LAMA: are they in the order that their papers report?

    python benches/prompt_systems.py --data FOLDER_WITH_LAMA [--facts 100] [--steps 4000] [--methods manual lpaqa ...]

Trains a small BERT on some facts of the ten relations, in the words of LPAQA's mined prompts; the manual and the
paraphrased prompts are held out. Then every method learns from the training facts, chooses on dev and is measured on
test. Prints the table of `probe`, and the orderings of the papers with their intervals over relations.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kgharvest.settings")

import django  # noqa: E402

django.setup()

from evaluation.documents.probes import probe_document  # noqa: E402
from evaluation.metrics.comparisons import paired_difference  # noqa: E402
from evaluation.relation_types import relation_type  # noqa: E402
from evaluation.reports.contents.probes import summary_table  # noqa: E402
from evaluation.reports.writers.plain import terminal_text  # noqa: E402
from evaluation.services.probe_facts import ProbeRelation  # noqa: E402
from evaluation.services.probe_measures import probe_records  # noqa: E402
from evaluation.services.probes import METHODS  # noqa: E402
from kgharvest.embedded_lm.train import Recipe, save, train  # noqa: E402
from kgharvest.embedded_lm.world import Phrasing, Relation  # noqa: E402
from kgharvest.engine.language_models.compact import load_compact  # noqa: E402
from kgharvest.engine.prompts.methods import Budget  # noqa: E402
from kgharvest.engine.prompts.template import PromptTemplate  # noqa: E402

PARTS = ("train", "dev", "test")
N_MINED = 12  # mined prompts that the LM learns from
N_PARAPHRASED = 12  # paraphrased ones that it is asked, besides the manual one
ORDERINGS = [
    ("lpaqa", "manual"),
    ("autoprompt", "manual"),
    ("soft", "autoprompt"),
    ("soft-deep", "soft"),
    ("bertese", "manual"),
    ("manual", "majority"),
]
PLAIN_WORDS = re.compile(r"[a-z]+( [a-z]+)?")  # one or two words, each of which becomes a token


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def facts_of(folder: Path, n: int) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return at most `n` facts of train and of test, and half as many of dev, of one subject each, in lower case."""
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
    """Return the prompts of a file, the heaviest first, that have each slot once."""
    lines = sorted(read(path), key=lambda line: -line.get("weight", 0.0))
    texts = [line["template"].replace("[X]", "<ENT0>").replace("[Y]", "<ENT1>").lower() for line in lines]
    texts = [re.sub("<ent([01])>", r"<ENT\1>", text) for text in texts]
    return [text for text in dict.fromkeys(texts) if text.count("<ENT0>") == text.count("<ENT1>") == 1]


def relations_of(data: Path, n_facts: int) -> tuple[list[Relation], list[ProbeRelation]]:
    """Return what the LM learns, and what it is asked."""
    known, asked = [], []
    for folder in sorted((data / "facts").iterdir()):
        facts = facts_of(folder, n_facts)
        manual, mined, paraphrased = (
            templates(data / "prompts" / kind / f"{folder.name}.jsonl") for kind in ("manual", "mined", "paraphrased")
        )
        learned = [text for text in mined if text not in (*manual, *paraphrased)][:N_MINED]
        phrasings = tuple(Phrasing((PromptTemplate.parse(text),)) for text in learned)
        held_out = tuple(Phrasing((PromptTemplate.parse(text),)) for text in (*manual, *paraphrased))
        every = tuple(pair for part in PARTS for pair in facts[part])
        known.append(Relation(folder.name, held_out[0].wordings[0], phrasings, held_out, every, ()))
        asked.append(ProbeRelation(folder.name, (*manual, *paraphrased[:N_PARAPHRASED]), facts))
    return known, asked


def trained(known: list[Relation], folder: Path, steps: int):
    recipe = Recipe(layers=2, hidden=192, heads=4, steps=steps)
    torch.set_num_threads(1)
    with tqdm(total=steps, desc="training", unit="step") as bar:
        model = train(known, recipe, 0, lambda step, loss: (bar.set_postfix(loss=f"{loss:.2f}"), bar.update()))
    save(model, known, folder)


def compare(records: list[dict], better: str, worse: str) -> str:
    p1 = {(one["method"], one["relation"]): one["p1"] for one in records if not one["is_control"]}
    names = sorted({relation for _, relation in p1})
    differences = np.array([p1[better, name] - p1[worse, name] for name in names])
    found = paired_difference(differences, np.random.default_rng(0))
    interval = f"{found.low:+.3f} to {found.high:+.3f}" if found.low is not None else found.reason
    return f"{better:>10} - {worse:<10} {found.difference:+.3f} ({interval}), p = {found.p:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder with facts/ and prompts/")
    parser.add_argument("--facts", type=int, default=100, help="of train and of test, per relation")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--iterations", type=int, default=80)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lm", type=Path, help="keep the LM here, or take the one that is here")
    parser.add_argument("--no-control", action="store_true")
    arguments = parser.parse_args()
    known, asked = relations_of(arguments.data, arguments.facts)
    folder = arguments.lm or Path(tempfile.mkdtemp(prefix="kgharvest-prompt-systems-"))
    if not (folder / "config.json").is_file():
        trained(known, folder, arguments.steps)
    lm = load_compact(folder)
    control = None if arguments.no_control else load_compact(folder, random_seed=0)
    budget = Budget(arguments.iterations, arguments.epochs)
    records = []
    for record in probe_records(lm, control, asked, arguments.methods, budget):
        records.append(record)
        control = ", random weights" if record["is_control"] else ""
        print(f"{record['method']:>10} {record['relation']:>6} P@1 {record['p1']:.3f}{control}", flush=True)
    types = {one.name: relation_type([pair for part in PARTS for pair in one.facts[part]]) for one in asked}
    print(terminal_text(summary_table(probe_document(records, types))))
    for better, worse in ORDERINGS:
        if {better, worse} <= set(arguments.methods):
            print(compare(records, better, worse))


if __name__ == "__main__":
    main()
