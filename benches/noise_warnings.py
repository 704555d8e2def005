"""Accuracy of the warning of noise, and of the unknown seed tuples that it names.

    python benches/noise_warnings.py measure {fit,held_out} FILE [--lm embedded] [--sets fourth] [--n-harvests 20]
    python benches/noise_warnings.py report FILE ...

measure: harvest with each prompt of warning_prompts.json and of the given sets of fresh_prompts.json, and append the
measures to FILE. Fitted with `fit` (lm embedded) and set `second` (lm embedded-small); the other prompts are held out.
Kinds: fresh (facts of the world as seed tuples), wrong (the same, but with the wording of another relation), unknown
(relations outside the world), false seeds (three or five of five seed tuples are false), and causal (smollm2). Tuples
are true if they are facts of the world, facts in the file, or regular forms by lemminflect. bad: harvests with a
precision below .2 among the 50 best tuples; good: the others.
report: print the share of bad harvests that were warned of and of good harvests with a false alarm, by kind, and the
thresholds with the most detections at a few false alarms.
"""

import argparse
import itertools
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import torch
from lemminflect import getInflection
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import kgharvest
from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.embedded_lm.world import load_world
from kgharvest.engine.harvest import harvest
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.prompts import comprehension
from kgharvest.engine.types import HarvestParams, HarvestSpec

FOLDER = Path(__file__).parent
TOP, FEW_TRUE, N_SEEDS, MOST_FALSE_ALARMS = 50, 0.2, 5, 0.03
PARAMS = {
    2: HarvestParams(candidates=300, pattern_budget="each"),
    3: HarvestParams(candidates=900, pattern_budget="shared"),
}
CAUSAL_PARAMS = HarvestParams(candidates=60, max_entity_tokens=1)
N_CAUSAL_SEEDS = 4
TAGS = {
    "past": "VBD", "gerund": "VBG", "plural": "NNS", "third": "VBZ", "comparative": "JJR", "superlative": "JJS"
}  # fmt: skip


class Case(NamedTuple):
    """A harvest to measure. n_false: number of false seed tuples, which come first."""

    kind: str
    relation: str
    prompt: str
    seeds: list
    facts: list
    check: str | None = None
    n_false: int = 0


def read(name):
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def seeds_of(relation):
    return relation.facts[:: len(relation.facts) // N_SEEDS][:N_SEEDS]


def embedded_cases(part, set_names):
    world, texts = {relation.name: relation for relation in load_world()}, read("warning_prompts.json")[part]
    fresh = {written["name"]: written["prompts"] for written in read("fresh_prompts.json")}
    prompts = [("fresh", *item) for item in texts.get("fresh", {}).items()]
    prompts += [("wrong", *item) for item in texts["wrong_wordings"].items()]
    prompts += [("fresh", name, text) for key in set_names for name in world for text in fresh[key][name]]
    for kind, name, text in prompts:
        yield Case(kind, name, text, seeds_of(world[name]), world[name].facts)
    for name, relation in texts["unknown_relations"].items():
        yield Case("unknown", name, relation["prompt"], relation["seed_tuples"], [])
    for index, relation in enumerate(world.values()):
        if ("held_out", "fit")[index % 2] == part:
            false = false_tuples(relation)
            for n_false in (3, 5) if len(false) == N_SEEDS else ():
                seeds = [*false[:n_false], *seeds_of(relation)[n_false:]]
                text = relation.phrasings[3 % len(relation.phrasings)].text
                yield Case("false seeds", relation.name, text, seeds, relation.facts, None, n_false)


def false_tuples(relation):
    """Return facts with the last entity of another fact."""
    facts, false = relation.facts, {}
    for index in range(0, 37 * len(facts), 37):
        first, others = facts[index % len(facts)], (facts[(index + shift) % len(facts)] for shift in range(7, 60, 5))
        mixed = ((*first[:-1], other[-1]) for other in others)
        false |= dict.fromkeys(itertools.islice((e for e in mixed if e not in facts), 1))
    return [entities for entities in false if len(set(entities)) == len(entities)][:N_SEEDS]


def causal_cases(part):
    texts, common = read("warning_prompts.json")[part], read("common_facts.json")
    known = [
        Case("causal", name, text, common[name]["seed_tuples"][:N_CAUSAL_SEEDS], common[name]["facts"])
        for name, prompts in texts["causal_common_facts"].items()
        for text in prompts
    ]
    others = [
        Case("causal", name, relation["prompt"], relation["seed_tuples"][:N_CAUSAL_SEEDS],
             relation.get("facts", []), relation.get("check"))
        for name, relation in texts["causal_relations"].items()
    ]  # fmt: skip
    pairs = itertools.zip_longest(known, others)
    return [case for pair in pairs for case in pair if case]


def is_true(case, facts, surface):
    folded = tuple(entity.casefold() for entity in surface)
    if case.check:
        return folded[-1] in getInflection(folded[0], TAGS[case.check]) and folded[0] != folded[-1]
    return folded in facts


def measured(lm, case, params):
    measures = []
    original = comprehension.is_noise

    def recorded(*values):
        measures.append(values)
        return original(*values)

    comprehension.is_noise = recorded
    seeds = tuple(map(tuple, case.seeds))
    result = harvest(HarvestSpec(case.relation, (case.prompt,), seeds, "human", params=params), lm)
    comprehension.is_noise = original
    facts = {tuple(entity.casefold() for entity in entities) for entities in [*case.facts, *seeds[case.n_false :]]}
    best = result.tuples[:TOP]
    return {
        "relation": case.relation,
        "prompt": case.prompt,
        "kind": case.kind,
        "precision": sum(is_true(case, facts, found.surface) for found in best) / max(len(best), 10),
        "measures": measures[0] if measures else None,
        "codes": result.codes,
        "seeds": [[seed in result.unknown_seed_tuples, index < case.n_false] for index, seed in enumerate(seeds)],
        "best": [" / ".join(found.surface) for found in best[:5]],
    }


def measure(arguments):
    torch.set_num_threads(1)
    is_causal = arguments.lm not in EMBEDDED_LMS
    if is_causal:
        lm, cases = kgharvest.load_lm(arguments.lm, dtype="bfloat16"), causal_cases(arguments.part)
    else:
        lm = load_compact(EMBEDDED_LMS[arguments.lm])
        cases = list(embedded_cases(arguments.part, arguments.sets))
    with arguments.file.open("a", encoding="utf-8") as file:
        for case in tqdm(cases[arguments.skip :][: arguments.n_harvests]):
            params = CAUSAL_PARAMS if is_causal else PARAMS[len(case.seeds[0])]
            row = {"part": arguments.part, "lm": arguments.lm, **measured(lm, case, params)}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()


def report(arguments):
    rows = [json.loads(line) for path in arguments.files for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["measures"]]
    groups = defaultdict(list)
    for row in rows:
        for key in ((row["part"], row["lm"], row["kind"]), (row["part"], "all", "all")):
            groups[key].append(row)
    print(f"{'part':10}{'lm':16}{'kind':13}{'bad':>5}{'found':>7}{'good':>6}{'false alarms':>14}")
    for key, members in sorted(groups.items()):
        bad, good = ([row for row in members if (row["precision"] < FEW_TRUE) == is_bad] for is_bad in (True, False))
        found, false = (sum("probably_noise" in row["codes"] for row in some) for some in (bad, good))
        print(f"{key[0]:10}{key[1]:16}{key[2]:13}{len(bad):5}{found:7}{len(good):6}{false:14}")
    for part in ("fit", "held_out"):
        marks = [mark for row in rows if row["part"] == part and row["kind"] == "false seeds" for mark in row["seeds"]]
        if marks:
            named = {is_false: [was for was, mark in marks if mark == is_false] for is_false in (True, False)}
            print(f"{part}: named {sum(named[True])} of {len(named[True])} false and {sum(named[False])} of "
                  f"{len(named[False])} true seed tuples")  # fmt: skip
    for examples in (False, True):
        fitted = [row for row in rows if row["part"] == "fit" and row["measures"][0] == examples]
        scores = [(score(*row["measures"]), row["precision"] < FEW_TRUE) for row in fitted]
        n_good = sum(not is_bad for _, is_bad in scores)
        if n_good in (0, len(scores)):
            continue
        best = max(
            (sum(is_bad and value < limit for value, is_bad in scores), -limit)
            for limit, _ in scores
            if sum(not is_bad and value < limit for value, is_bad in scores) <= MOST_FALSE_ALARMS * n_good
        )
        print(f"{'with' if examples else 'without'} examples: fitted threshold {-best[1]:.2f}, finds {best[0]} of "
              f"{len(scores) - n_good}")  # fmt: skip


def score(shows_examples, familiar, dependent):
    return dependent if shows_examples else familiar + min(dependent, comprehension.MOST_DEPENDENCE) / 20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("measure")
    command.add_argument("part", choices=("fit", "held_out"))
    command.add_argument("file", type=Path)
    command.add_argument("--lm", default="embedded")
    command.add_argument("--sets", nargs="*", default=[])
    command.add_argument("--n-harvests", type=int)
    command.add_argument("--skip", type=int, default=0)
    command.set_defaults(run=measure)
    command = commands.add_parser("report")
    command.add_argument("files", type=Path, nargs="+")
    command.set_defaults(run=report)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
