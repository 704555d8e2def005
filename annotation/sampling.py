"""Draw samples and orders. Seeds come in, nothing is global."""

from __future__ import annotations

import hashlib

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
    digest = hashlib.sha256(f"{seed}:{code}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % n
