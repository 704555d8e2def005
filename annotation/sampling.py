"""Draw samples and orders. Seeds come in, nothing is global."""

from __future__ import annotations

import hashlib
from math import ceil

import numpy as np


def draw_ranks(rank_from: int, rank_to: int, sample_size: int, rng: np.random.Generator) -> set[int]:
    """Return a simple random sample of the ranks `rank_from` .. `rank_to`, both included, without replacement."""
    offsets = rng.choice(rank_to - rank_from + 1, size=sample_size, replace=False)
    return {rank_from + int(offset) for offset in offsets}


def random_order(n: int, rng: np.random.Generator) -> list[int]:
    """Return 0 .. n-1 in random order."""
    return rng.permutation(n).tolist()


def start_position(seed: int, code: str, n: int) -> int:
    """Return where in a cycle of `n` tasks the annotator `code` begins: anywhere, but fixed by seed and code."""
    return _digest(f"{seed}:{code}") % n


def gold_places(seed: int, code: str, gold_share: float, first: int, n: int) -> list[int]:
    """Return which of the next `n` statements of the annotator `code` are gold: offsets from `first`, ascending.

    first: how many they were handed out before. Their statements fall into stretches of 1/gold_share; each stretch has
    one gold statement at a place of its own, fixed by seed and code, so that gold is spread evenly and nobody can tell
    where.
    """
    if not gold_share:
        return []
    stretches = range(max(int(first * gold_share) - 1, 0), int((first + n) * gold_share) + 1)
    places = (_gold_place(seed, code, gold_share, stretch) for stretch in stretches)
    return [place - first for place in places if first <= place < first + n]


def _gold_place(seed: int, code: str, gold_share: float, stretch: int) -> int:
    begin, end = ceil(stretch / gold_share), ceil((stretch + 1) / gold_share)
    return begin + _digest(f"{seed}:{code}:gold:{stretch}") % (end - begin)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
