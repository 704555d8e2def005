"""Tiny LMs trained in seconds to fill a mask from the text before it.

They continue "the film was awful ." with "it is bad ." instead of "it is good .", extract a person's town from a
sentence about the person, and memorize the home town of every person.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForMaskedLM, AutoTokenizer

THINGS = ("film", "book", "song", "show", "meal", "trip")
ADJECTIVES = {
    "positive": ("lovely", "funny", "clever", "warm", "bright", "tasty", "moving", "charming"),
    "negative": ("awful", "boring", "silly", "cold", "dull", "nasty", "messy", "clumsy"),
}
VERDICTS = {"positive": ("good", "fine", "nice"), "negative": ("bad", "poor", "sad")}
PEOPLE = ("anna", "ben", "carla", "david", "emma", "felix", "greta", "hugo", "ida", "jonas", "karin", "leo")
TOWNS = ("oslo", "rome", "cairo", "lima", "delhi", "tokyo", "paris", "quito")
OTHERS = ("the", "was", "it", "is", "lives", "in", "from", "comes", "so", "very", "tree", "seven", "under", "blue")
WORDS = (
    *THINGS,
    *(word for words in (*ADJECTIVES.values(), *VERDICTS.values()) for word in words),
    *PEOPLE,
    *TOWNS,
    *OTHERS,
)
HOME = {person: TOWNS[number % len(TOWNS)] for number, person in enumerate(PEOPLE)}

STEPS, BATCH = 500, 64
SPREAD = 0.05


def review(rng: Random, label: str) -> str:
    return f"the {rng.choice(THINGS)} was {rng.choice(ADJECTIVES[label])} ."


def opinion(rng: Random) -> tuple[str, str]:
    """Return a text and its masked last word."""
    label = rng.choice(list(VERDICTS))
    return f"{review(rng, label)} it is", rng.choice(VERDICTS[label])


def report(rng: Random) -> tuple[str, str]:
    person, town = rng.choice(PEOPLE), rng.choice(TOWNS)
    phrase = rng.choice(("lives in", "comes from"))
    return f"{person} {phrase} {town} . {person} is from", town


def memory(rng: Random) -> tuple[str, str]:
    person = rng.choice(PEOPLE)
    return f"{person} is from", HOME[person]


def teach(folder: Path, seed: int = 1) -> Path:
    """Train the LM in `folder`, whose vocabulary contains WORDS, and return the folder.

    seed: not every seed converges in STEPS; the default converges for both kinds of tokenizers.
    """
    torch.manual_seed(seed)
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    for weights in model.parameters():
        if weights.dim() > 1:
            nn.init.normal_(weights, std=SPREAD)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    rng = Random(seed)
    model.train()
    encoded = cache(lambda text: torch.tensor(tokenizer(f" {text} {tokenizer.mask_token} .").input_ids))
    answers = {word: tokenizer(f" {word}", add_special_tokens=False).input_ids[0] for word in WORDS}
    for _ in range(STEPS):
        texts, words = zip(*(kind(rng) for kind in (opinion, report, memory) for _ in range(BATCH // 3)), strict=True)
        ids = pad_sequence(list(map(encoded, texts)), batch_first=True, padding_value=tokenizer.pad_token_id)
        logits = model(ids, attention_mask=ids != tokenizer.pad_token_id).logits[ids == tokenizer.mask_token_id]
        nn.functional.cross_entropy(logits, torch.tensor([answers[word] for word in words])).backward()
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
    return folder
