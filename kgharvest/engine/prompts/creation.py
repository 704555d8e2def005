"""Paraphrasers, and prompt creation: paraphrase a few initial prompts into many (BertNet, section 3.1)."""

from __future__ import annotations

import random
import re
import threading
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from rapidfuzz.distance import Levenshtein

from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.prompts.paraphrasers.chat import ChatParaphraser
from kgharvest.engine.prompts.paraphrasers.offline import OfflineParaphraser
from kgharvest.engine.prompts.slot_recovery import as_prompt, as_sentence
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import (
    EngineError,
    OnProgress,
    Paraphraser,
    ParaphraserKind,
    ParaphraserSettings,
    Progress,
    ignore,
)

if TYPE_CHECKING:
    from kgharvest.engine.language_models.encoder_decoder import Seq2SeqModel

# Paraphrasing

PARAPHRASES_PER_CALL = 10


class Seq2SeqParaphraser(Paraphraser):
    """Paraphraser based on an encoder-decoder model. `model` is a hub id or a folder. It is loaded at the first call.

    prefix: text that the model expects before the sentence, such as "paraphrase: " for T5 paraphrasers.
    seed: sampling seed. Equal sentences get equal samples. None: use the best results of a beam search.
    """

    def __init__(
        self, model: str, revision: str | None = None, prefix: str = "", seed: int | None = None, device: str = "cpu"
    ) -> None:
        self.name = f"seq2seq:{model}"
        self._model_name, self._revision, self._device = model, revision, device
        self._prefix, self._seed = prefix, seed

    def paraphrase(self, sentence: str, entities: Sequence[str]) -> list[str]:
        text = self._prefix + sentence
        if self._seed is None:
            outputs = self._model.beam(text, PARAPHRASES_PER_CALL)
        else:
            outputs = self._model.sample(text, PARAPHRASES_PER_CALL, zlib.crc32(text.encode()) ^ self._seed)
        return [output for output in dict.fromkeys(outputs) if output and output != sentence]

    @cached_property
    def _model(self) -> Seq2SeqModel:
        # transformers takes seconds to import, and the other paraphrasers do not need it.
        from kgharvest.engine.language_models.loading import load_seq2seq

        return load_seq2seq(self._model_name, self._revision, self._device)


class TranslationParaphraser(Paraphraser):
    """Paraphraser that translates a sentence to another language and back (LPAQA: Jiang et al. 2020, section 3.2).

    models: two encoder-decoders (hub ids or folders) as "OUT,BACK", loaded at the first call. A sentence
        gets BEAM translations, and each translation BEAM back-translations. The most likely round trips come first.
    """

    BEAM = 7  # as in LPAQA's code

    def __init__(self, models: str, device: str = "cpu") -> None:
        out_name, _, back_name = (name.strip() for name in models.partition(","))
        if not out_name or not back_name:
            raise EngineError(f"The translation paraphraser requires two models, OUT,BACK, but got {models!r:.80}.")
        self.name = f"translation:{out_name},{back_name}"
        self._names, self._device = (out_name, back_name), device

    def paraphrase(self, sentence: str, entities: Sequence[str]) -> list[str]:
        out_model, back_model = self._models
        likeliest: dict[str, float] = {}
        for translation, out in out_model.beam_with_logprobs(sentence, self.BEAM):
            for text, home in back_model.beam_with_logprobs(translation, self.BEAM):
                likeliest[text] = max(out + home, likeliest.get(text, -inf))
        return sorted(likeliest.keys() - {"", sentence}, key=lambda text: (-likeliest[text], text))

    @cached_property
    def _models(self) -> tuple[Seq2SeqModel, Seq2SeqModel]:
        from kgharvest.engine.language_models.loading import load_seq2seq

        out_name, back_name = self._names
        return load_seq2seq(out_name, None, self._device), load_seq2seq(back_name, None, self._device)


PARAPHRASERS: dict[ParaphraserKind, Callable[[ParaphraserSettings, LanguageModel], Paraphraser]] = {
    "offline": lambda settings, lm: OfflineParaphraser(lm),
    "chat": lambda settings, lm: ChatParaphraser(
        settings.base_url, settings.model, settings.max_calls, settings.max_tokens
    ),
    "seq2seq": lambda settings, lm: Seq2SeqParaphraser(settings.model, prefix=settings.prefix, seed=settings.seed),
    "translation": lambda settings, lm: TranslationParaphraser(settings.model),
}


def make_paraphraser(settings: ParaphraserSettings, lm: LanguageModel) -> Paraphraser:
    """Return the paraphraser of `settings`. Raises EngineError if the kind is unknown or the model is missing."""
    if settings.kind not in PARAPHRASERS:
        raise EngineError(f"Unknown paraphraser {settings.kind!r}. Choose one of {', '.join(PARAPHRASERS)}.")
    if settings.kind != "offline" and not settings.model:
        raise EngineError(f"The {settings.kind} paraphraser requires a model. Set it in the paraphraser settings.")
    return PARAPHRASERS[settings.kind](settings, lm)


STAGE = "prompts"
N_PROMPTS = 10
MAX_SIMILARITY = 0.75
FRAMED_SHARE = 5  # at most 1 in 5 prompts is an initial prompt in a frame ("it is well known that ...")
TRIES_PER_PROMPT = 3  # maximum number of seed tuples tried per prompt until one yields new paraphrases
TICK_S = 0.5
GAP_AT_END = re.compile(r"\s+(?=[.?!]$)")

Reword = Callable[[str, Sequence[str]], list[str]]


def create_prompts(
    initial: Sequence[PromptTemplate],
    seed_tuples: Sequence[Sequence[str]],
    paraphraser: Paraphraser,
    rng: random.Random,
    on_progress: OnProgress = ignore,
    n_prompts: int = N_PROMPTS,
) -> list[PromptTemplate]:
    """Return `initial` and paraphrases of these prompts: `n_prompts` in total, or fewer if paraphrases are exhausted.

    Each prompt is filled with a random seed tuple and paraphrased. A paraphrase that differs enough from all prompts so
    far is accepted and paraphrased later. If paraphrases are missing, the initial prompts are restated. If wordings are
    still missing, up to a fifth of the prompts are initial prompts in a frame. If the paraphraser is deterministic, the
    same `rng` state gives the same prompts. `on_progress` receives the number of prompts every half second. If it
    raises an exception, the creation ends.
    """
    prompts = list(dict.fromkeys(initial))
    pending = deque(prompts)

    def report() -> None:
        on_progress(Progress(STAGE, min(len(prompts), n_prompts), n_prompts))

    def in_other_words(prompt: PromptTemplate, reword: Reword, n_missing: int) -> list[PromptTemplate]:
        def reword_with_ticks(sentence: str, entities: Sequence[str]) -> list[str]:
            future = in_background(reword, sentence, entities)
            report()
            while wait_for([future], timeout=TICK_S).not_done:
                report()
            return future.result()

        return new_prompts(prompt, seed_tuples, prompts, reword_with_ticks, rng)[:n_missing]

    while pending and len(prompts) < n_prompts:
        new = in_other_words(pending.popleft(), paraphraser.paraphrase, n_prompts - len(prompts))
        prompts += new
        pending += new
    for prompt in initial if n_prompts > len(prompts) else ():
        prompts += in_other_words(prompt, paraphraser.restate, n_prompts - len(prompts))
    n_most = min(n_prompts, len(prompts) + len(prompts) // (FRAMED_SHARE - 1))
    for prompt in initial if n_most > len(prompts) else ():
        prompts += in_other_words(prompt, paraphraser.frame, n_most - len(prompts))
    report()
    return prompts


def new_prompts(
    prompt: PromptTemplate,
    seed_tuples: Sequence[Sequence[str]],
    kept: Sequence[PromptTemplate],
    reword: Reword,
    rng: random.Random,
) -> list[PromptTemplate]:
    """Return paraphrases of `prompt` that differ enough from `kept` and each other.

    They come from the first seed tuple that yields any. Paraphrases have a space before the final punctuation mark only
    if `prompt` has one.
    """
    has_gap = GAP_AT_END.search(prompt.text)
    for entities in rng.sample(list(seed_tuples), min(TRIES_PER_PROMPT, len(seed_tuples))):
        new: list[PromptTemplate] = []
        for sentence in reword(as_sentence(prompt, entities), entities):
            recovered = as_prompt(sentence, entities)
            if recovered is None:
                continue
            template = recovered if has_gap else PromptTemplate.parse(GAP_AT_END.sub("", recovered.text))
            if all(similarity(template, other) < MAX_SIMILARITY for other in (*kept, *new)):
                new.append(template)
        if new:
            return new
    return []


def similarity(prompt: PromptTemplate, other: PromptTemplate) -> float:
    """Return 1 - edit distance / longer length, in [0, 1]."""
    return Levenshtein.normalized_similarity(prompt.text, other.text)


def in_background(reword: Reword, sentence: str, entities: Sequence[str]) -> Future[list[str]]:
    """Reword a sentence in a daemon thread, so that a silent endpoint delays neither cancellation nor exit."""
    future: Future[list[str]] = Future()

    def run() -> None:
        try:
            future.set_result(reword(sentence, entities))
        except BaseException as error:  # `Future.result` raises it again
            future.set_exception(error)

    threading.Thread(target=run, name="paraphraser", daemon=True).start()
    return future
