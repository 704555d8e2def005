"""Precision of each setting's harvests from an embedded LM.

    python benches/settings.py [--model embedded] [--relation R ...]

Prompts are the wordings that the LM was not trained on; the first is the initial prompt. Each relation has five seed
tuples. Prints per relation the share of facts of the world among the 50 best tuples, and CPU seconds on one thread.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harvest_quality import harvest_quality

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.embedded_lm.world import Relation, load_world
from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.settings import SETTINGS
from kgharvest.engine.types import HarvestParams

PARAMS = HarvestParams(candidates=450)


class Harvested(NamedTuple):
    precision: float
    seconds: float


def measure(lm: LanguageModel, relation: Relation, setting: str) -> Harvested:
    prompts = [phrasing.text for phrasing in relation.held_out]
    start = time.process_time()
    quality = harvest_quality(lm, relation, prompts, PARAMS, setting)
    return Harvested(quality.precision, time.process_time() - start)


def show(name: str, row: list[Harvested]) -> None:
    cells = "".join(f"{harvest.precision:8.2f} {harvest.seconds:5.1f}" for harvest in row)
    print(f"{name:20}{cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=EMBEDDED_LMS, default="embedded-small")
    parser.add_argument("--setting", nargs="+", choices=SETTINGS, default=[*SETTINGS])
    parser.add_argument("--relation", nargs="+", help="relations to measure (default: all binary ones)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lm = load_compact(EMBEDDED_LMS[arguments.model])
    known = [
        relation
        for relation in load_world()
        if relation.arity == 2 and relation.name in (arguments.relation or [relation.name])
    ]
    print(f"{'':20}" + "".join(f"{setting:>14}" for setting in arguments.setting))
    rows = []
    for relation in known:
        rows.append([measure(lm, relation, setting) for setting in arguments.setting])
        show(relation.name, rows[-1])
    show("mean", [Harvested(*mean) for mean in np.mean(rows, axis=0)])


if __name__ == "__main__":
    main()
