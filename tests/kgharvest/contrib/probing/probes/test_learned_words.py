"""Soft words and their original words: p(w | v) and norm ratios."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch

from evaluation.rendering.figures.drawing import render
from kgharvest.contrib.probing.probes.figures import draw_words
from kgharvest.contrib.probing.probes.learned_words import learned_words
from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.language_models.masked import SoftWords
from kgharvest.engine.prompt_learning.soft_prompts import soften
from kgharvest.engine.prompts.prompt_set import uniform
from kgharvest.engine.prompts.template import PromptTemplate


@pytest.fixture(scope="module")
def embedded():
    return load_compact(EMBEDDED_LMS["embedded-small"])


def test_learned_words_have_probabilities_and_norm_ratios(embedded):
    prompts = [
        embedded.encode_prompt(PromptTemplate.parse(text)) for text in ("the <ENT1> of <ENT0> .", "<ENT0> in <ENT1>")
    ]
    softened, vectors = soften(embedded, prompts)
    (paris,) = embedded.encode_entity("paris")
    changed = vectors.clone()
    changed[1] = 3 * embedded.word_embeddings[paris]
    prompt_set = replace(uniform(softened, "mixture"), soft_words=SoftWords(changed))

    parts = learned_words(embedded, prompt_set, prompts)

    assert [[part if isinstance(part, int) else part["original"] for part in prompt] for prompt in parts] == [
        ["the", 1, "of", 0, "."],
        [0, "in", 1],
    ]
    word = parts[0][2]
    scores = torch.softmax(embedded.word_embeddings @ changed[1], dim=0)
    of = embedded.encode_entity("of")[0]
    before = torch.softmax(embedded.word_embeddings @ embedded.word_embeddings[of], dim=0)
    norms = embedded.word_embeddings.norm(dim=1)
    assert (word["word"], word["p"]) == (
        embedded.tokens.texts()[scores.argmax()],
        pytest.approx(scores.max().item(), rel=1e-4),
    )
    assert word["original_p"] == pytest.approx(before[of].item(), rel=1e-4)
    assert word["norm_ratio"] == pytest.approx((3 * norms[paris] / norms[of]).item(), rel=1e-5)
    assert parts[1][1]["norm_ratio"] == pytest.approx(1)


def test_figure_shows_probability_as_opacity_and_norm_as_size():
    words = [
        {"word": "sings", "p": 0.2, "original": "plays", "original_p": 0.4, "norm_ratio": 1.5},
        {"word": ".", "p": 0.1, "original": ".", "original_p": 0.1, "norm_ratio": 1.0},
    ]
    entry = {"prompts": [{"weight": 0.75, "parts": [0, words[0], 1, words[1]]}, {"weight": 0.25, "parts": [1, 0]}]}

    svg = ElementTree.fromstring(render(draw_words(entry), {}, "svg"))

    texts = [element for element in svg if element.tag.endswith("text")]
    assert [element.text for element in texts] == [
        *("[0.750]", "x", "x", "sings", "plays", "y", "y", ".", "."),
        *("[0.250]", "y", "y", "x", "x"),
    ]
    sings, plays = texts[3].attrib, texts[4].attrib
    assert float(sings["fill-opacity"]) == pytest.approx(0.5)
    assert float(plays["fill-opacity"]) == 1
    assert float(sings["font-size"]) == pytest.approx(1.5 * 13)
    assert float(sings["y"]) < float(plays["y"])
    assert render(draw_words(entry), {}, "pdf").startswith(b"%PDF")


def test_figure_of_prompts_without_words_shows_the_slots():
    svg = ElementTree.fromstring(render(draw_words({"prompts": [{"weight": 1.0, "parts": [0, 1]}]}), {}, "svg"))

    texts = [element.text for element in svg if element.tag.endswith("text")]
    assert texts == ["[1.000]", "x", "x", "y", "y"]
