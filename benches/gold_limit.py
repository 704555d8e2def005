"""How often a limit on gold accuracy pauses people who meet it, and how soon it pauses people who do not.

    python benches/gold_limit.py [N_PEOPLE]

Everyone is checked after each gold answer from the tenth to the 200th. Prints a table for docs/quality.md.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from annotation.quality.profiles import is_below

LIMITS = (0.6, 0.7, 0.8, 0.85, 0.9)
N_GOLD, N_ANSWERS = 10, 200
BELOW = 0.2  # distance from the limit of people who should be paused

is_below = cache(is_below)


def answers_until_pause(accuracy: float, limit: float, n_people: int, rng: np.random.Generator) -> np.ndarray:
    """Return (n_people,) the number of answers after which each is paused, or infinity for never."""
    n_right = (rng.random((n_people, N_ANSWERS)) < accuracy).cumsum(axis=1)
    return np.array(
        [
            next((n for n in range(N_GOLD, N_ANSWERS + 1) if is_below(limit, int(right[n - 1]), n)), np.inf)
            for right in n_right
        ]
    )


def main(n_people: int = 4000) -> None:
    rng = np.random.default_rng(0)
    print("| limit | paused people exactly at the limit | 20 points below: half are paused after | 90 % after |")
    print("|---|---|---|---|")
    for limit in LIMITS:
        false_alarms = np.isfinite(answers_until_pause(limit, limit, n_people, rng)).mean()
        half, most = np.quantile(answers_until_pause(limit - BELOW, limit, n_people, rng), [0.5, 0.9], method="higher")
        print(f"| {limit:g} | {100 * false_alarms:.1f} % | {half:g} | {most:g} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
