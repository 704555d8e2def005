"""Cost of a harvest of the paper's largest size: 50,000 candidates, entities of up to two tokens.

    python benches/large_harvest.py [--model M] [--relation R] [--candidates 50000] [--pattern-budget shared|each]

With `each`, every token-count pattern gets that many candidates. Prints seconds of the stages and CPU seconds in total,
the peak memory above that of the loaded LM, and the longest time between two progress reports, which bounds how long a
cancellation takes.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.harvest import harvest
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.types import HarvestParams, HarvestSpec

RELATION_SETS = Path(__file__).resolve().parent.parent / "kgharvest" / "relation_sets"


class Watch:
    """Progress callback that records the seconds of each stage and the longest time without a report."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self.longest_gap = 0.0
        self.last = time.monotonic()

    def __call__(self, progress):
        gap = time.monotonic() - self.last
        self.last += gap
        self.longest_gap = max(self.longest_gap, gap)
        self.seconds[progress.stage] = self.seconds.get(progress.stage, 0.0) + gap


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--relation", default="prevent")
    parser.add_argument("--candidates", type=int, default=50_000)
    parser.add_argument("--pattern-budget", choices=["each", "shared"], default="shared")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    relations = json.loads((RELATION_SETS / "demo.json").read_text())["relations"]
    relation = next(relation for relation in relations if relation["name"] == arguments.relation)
    embedded = EMBEDDED_LMS.get(arguments.model)
    lm = load_compact(embedded) if embedded else load(arguments.model)  # as in harvests
    spec = HarvestSpec(
        relation=relation["name"],
        initial_prompts=tuple(relation["initial_prompts"]),
        seed_tuples=tuple(map(tuple, relation["seed_tuples"])),
        setting="multi",
        prompts=tuple(relation["prompts"]),
        params=HarvestParams(candidates=arguments.candidates, pattern_budget=arguments.pattern_budget),
    )
    loaded, watch = peak_mb(), Watch()
    start, cpu_start = time.monotonic(), time.process_time()
    result = harvest(spec, lm, watch)
    stages = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in watch.seconds.items())
    cpu_s = time.process_time() - cpu_start
    print(f"{time.monotonic() - start:.1f} s, {cpu_s:.1f} CPU-seconds ({stages})")
    print(f"longest time without a progress report {watch.longest_gap:.2f} s")
    print(f"peak memory {peak_mb():.0f} MB, {peak_mb() - loaded:.0f} MB above the loaded LM")
    print(f"{result.stats}, rejected {dict(result.rejected)}, notice {result.notice}")


if __name__ == "__main__":
    main()
