"""Quality of the embedded LMs: python benches/embedded_lm.py [--prompts FILE] [--only-fresh]

Tail given head: the last entity of a fact, if it is one token, ranked over the whole vocabulary without the other true
tails of the same head. Harvest: the product's own search. The 50 best tuples after re-scoring are compared with the
facts of the world, so a true tuple that is not a listed fact counts as wrong. Seen prompts are those of the relation
set `demo`. Seconds are CPU seconds on one thread for the harvest with all seen prompts.

Fresh prompts (two per relation; fresh_prompts.json contains the sets and describes how each was written) were written
by people who saw neither phrasings nor vocabulary. None became a phrasing; prompts that happen to match one are
counted. --prompts evaluates the file of a further set, an object that maps relation names to prompts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harvest_quality import TOP, HarvestQuality, harvest_quality

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.embedded_lm.card import TailRecall, average, some_phrasings, tail_recall
from kgharvest.embedded_lm.world import Relation, load_world, parse_phrasing
from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.types import HarvestParams

ROOT = Path(__file__).resolve().parent.parent
DEMO = json.loads((ROOT / "kgharvest" / "relation_sets" / "demo.json").read_text(encoding="utf-8"))
FRESH_SETS = {
    written["name"]: written["prompts"]
    for written in json.loads((ROOT / "benches" / "fresh_prompts.json").read_text(encoding="utf-8"))
}
FEW_TRUE = 0.2  # precision below which the product should warn about a harvest
SEEN_PROMPTS = {relation["name"]: relation["prompts"] for relation in DEMO["relations"]}
# Most of the eight patterns of a 3-ary relation contain no fact, so its candidates are not divided among patterns.
PARAMS = {
    2: HarvestParams(candidates=450, pattern_budget="each"),
    3: HarvestParams(candidates=1200, pattern_budget="shared"),
}
LOADINGS = 3

Prompts = Mapping[str, Sequence[str]]  # by relation name


@dataclass(frozen=True)
class Quality:
    """Results of one LM on one relation. single: results with each of the seen prompts alone."""

    relation: Relation
    tail_seen: TailRecall
    tail_held_out: TailRecall
    seen: HarvestQuality
    held_out: HarvestQuality
    single: tuple[HarvestQuality, ...]
    seconds: float

    @property
    def mean_single(self) -> float:
        return fmean(quality.precision for quality in self.single)

    @property
    def gain_of_multi(self) -> int:
        """Return how many more true tuples all prompts find together than each single prompt, summed."""
        return sum(self.seen.n_true - quality.n_true for quality in self.single)


def measure(lm: LanguageModel, relation: Relation) -> Quality:
    prompts = SEEN_PROMPTS[relation.name]
    params = PARAMS[relation.arity]
    start = time.process_time()
    seen = harvest_quality(lm, relation, prompts, params)
    seconds = time.process_time() - start
    return Quality(
        relation=relation,
        tail_seen=tail_recall(lm, relation, some_phrasings(relation)),
        tail_held_out=tail_recall(lm, relation, relation.held_out),
        seen=seen,
        held_out=harvest_quality(lm, relation, [phrasing.text for phrasing in relation.held_out], params),
        single=tuple(harvest_quality(lm, relation, [prompt], params) for prompt in prompts),
        seconds=seconds,
    )


def print_fresh_prompts(lm: LanguageModel, relations: Sequence[Relation], name: str, prompts: Prompts) -> None:
    """Print the quality of `lm` with the fresh `prompts` together and each alone, and how often it warns."""
    recalls, alone, together = [], [], []
    for relation in relations:
        texts = prompts[relation.name]
        recalls.append(tail_recall(lm, relation, list(map(parse_phrasing, texts))))
        alone += [harvest_quality(lm, relation, [text], PARAMS[relation.arity]) for text in texts]
        together.append(harvest_quality(lm, relation, texts, PARAMS[relation.arity]))
    few = [quality.precision < FEW_TRUE for quality in alone]
    warned = [quality.warning is not None for quality in alone]
    n_right_warnings = sum(map(all, zip(few, warned, strict=True)))
    p_together, p_alone = (fmean(quality.precision for quality in qualities) for qualities in (together, alone))
    known = [is_known(relation, text) for relation in relations for text in prompts[relation.name]]
    p_new = fmean(quality.precision for quality, is_old in zip(alone, known, strict=True) if not is_old)
    print(
        f"fresh prompts, {name}: tail P@1 {average(recalls).precision_at_1:.3f}  harvest P@{TOP} with both "
        f"{p_together:.3f}, with one {p_alone:.3f} ({p_new:.3f} without the {sum(known)} that are also phrasings); "
        f"below {FEW_TRUE} with {sum(few)} of {len(few)}, warnings for {n_right_warnings} of these and for "
        f"{sum(warned) - n_right_warnings} others",
        flush=True,
    )


def is_known(relation: Relation, prompt: str) -> bool:
    """Return whether the LMs were trained on the wording of `prompt`, except for case and final punctuation."""
    text = prompt.lower().replace("<ent", "<ENT").rstrip(".!?")
    return any(phrasing.holds(text + end) for phrasing in relation.phrasings for end in ("", ".", "!", "?"))


def loading_seconds(folder: Path) -> float:
    """Return the wall-clock time of a new process that loads the LM, with imports; the minimum of a few."""
    program = (
        "from pathlib import Path; from kgharvest.engine.language_models.compact import load_compact; "
        f"load_compact(Path({str(folder)!r}))"
    )
    durations = []
    for _ in range(LOADINGS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
        durations.append(time.perf_counter() - start)
    return min(durations)


def sign_flip_p(differences: Sequence[int]) -> float:
    """Return the two-sided p of the sum of paired `differences` under all 2^n sign changes.

    Exact for any n: the differences are integers, so convolution can count the sign patterns that lead to a sum.
    """
    ways = np.ones(1)  # ways[i]: sign patterns whose sum is i - sum(|differences| so far)
    for difference in differences:
        either_sign = np.zeros(2 * abs(difference) + 1)
        either_sign[0] += 1
        either_sign[-1] += 1
        ways = np.convolve(ways, either_sign)
    reach = len(ways) // 2
    sums = np.abs(np.arange(-reach, reach + 1))
    return float(ways[sums >= abs(sum(differences))].sum() / ways.sum())


def print_relations(qualities: Sequence[Quality]) -> None:
    print(f"\n{'relation':24} {'tail P@1':>14} {'':8} {f'harvest P@{TOP}':>22} {'false':>6} {'CPU-s':>6}")
    print(f"{'':24} {'seen':>6} {'held':>7} {'major':>8} {'seen':>8} {'single':>6} {'held':>6} {'bel.':>6}")
    for quality in qualities:
        print(
            f"{quality.relation.name:24} {quality.tail_seen.precision_at_1:6.3f} "
            f"{quality.tail_held_out.precision_at_1:7.3f} {quality.tail_seen.majority:8.3f} "
            f"{quality.seen.precision:8.2f} {quality.mean_single:6.2f} {quality.held_out.precision:6.2f} "
            f"{quality.seen.n_misconceptions:6} {quality.seconds:6.1f}"
        )


def print_summary(qualities: Sequence[Quality]) -> None:
    for phrasings, recalls in (
        ("seen", [quality.tail_seen for quality in qualities]),
        ("held-out", [quality.tail_held_out for quality in qualities]),
    ):
        mean = average(recalls)
        print(
            f"tail, {phrasings} phrasings: P@1 {mean.precision_at_1:.3f}  P@10 {mean.precision_at_10:.3f}  "
            f"MRR {mean.mean_reciprocal_rank:.3f}  majority {mean.majority:.3f}"
        )
    for arity in sorted({quality.relation.arity for quality in qualities}):
        of_arity = [quality for quality in qualities if quality.relation.arity == arity]
        print(
            f"harvest, arity {arity} ({len(of_arity)} relations): P@{TOP} seen "
            f"{fmean(quality.seen.precision for quality in of_arity):.3f}  held-out "
            f"{fmean(quality.held_out.precision for quality in of_arity):.3f}  single prompt "
            f"{fmean(quality.mean_single for quality in of_arity):.3f}"
        )
    gains = [quality.gain_of_multi for quality in qualities]
    print(f"all prompts against the mean single prompt: {describe(gains)}")
    n_with_misconceptions = sum(quality.seen.n_misconceptions > 0 for quality in qualities)
    print(f"misconceptions among the best {TOP}: in {n_with_misconceptions} of {len(qualities)} relations")
    print(f"seconds per relation: mean {fmean(quality.seconds for quality in qualities):.1f}", end="  ")
    print(f"slowest {max(quality.seconds for quality in qualities):.1f}")


def print_comparison(first: Sequence[Quality], second: Sequence[Quality]) -> None:
    differences = [quality.seen.n_true - other.seen.n_true for quality, other in zip(first, second, strict=True)]
    print(
        f"\n{' - '.join(EMBEDDED_LMS)}, harvest P@{TOP} with seen prompts, paired by relation: "
        f"mean {fmean(differences) / TOP:+.3f}, {describe(differences)}"
    )


def describe(differences: Sequence[int]) -> str:
    better, worse = (sum(sign * difference > 0 for difference in differences) for sign in (1, -1))
    p = sign_flip_p(differences)
    return f"better on {better}, worse on {worse} of {len(differences)}, exact sign-flip p = {p:.2g}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the quality of the embedded LMs.")
    parser.add_argument("--prompts", type=Path, help="file with a further set of fresh prompts")
    parser.add_argument("--only-fresh", action="store_true", help="evaluate only fresh prompts")
    return parser.parse_args()


def main() -> None:
    torch.set_num_threads(1)
    options = arguments()
    fresh_sets = dict(FRESH_SETS)
    if options.prompts:
        fresh_sets[options.prompts.name] = json.loads(options.prompts.read_text(encoding="utf-8"))
    relations = load_world()
    measured = []
    for name, folder in EMBEDDED_LMS.items():
        lm = load_compact(folder)
        print(f"\n== {name}: loaded in {loading_seconds(folder):.1f} s with imports")
        if not options.only_fresh:
            measured.append([measure(lm, relation) for relation in tqdm(relations, desc=name, leave=False)])
            print_relations(measured[-1])
            print()
            print_summary(measured[-1])
        for set_name, prompts in fresh_sets.items():
            print_fresh_prompts(lm, relations, set_name, prompts)
    if measured:
        print_comparison(*measured)


if __name__ == "__main__":
    main()
