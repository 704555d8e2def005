"""Prompts with worked examples: their texts, encoding, choice, weights, and the tuples that they leave out."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from transformers import AutoTokenizer

from kgharvest.engine.harvest import encode_seeds, harvest, harvest_prepared, prepare
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.parts import InTurn
from kgharvest.engine.prompts.few_shot import FORMS, FewShot, is_in_lines, permutations, turns, with_examples
from kgharvest.engine.prompts.strategies import PromptSource, choose_prompts
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.scoring import compatibilities, prompt_weights
from kgharvest.engine.types import HarvestParams, HarvestSpec, ignore
from kgharvest.harvests.parts.serialization import read_prepared, write_prepared
from tests.kgharvest.engine.tiny_models import tiny_bert, tiny_gpt2, tiny_llama

CAPITAL = PromptTemplate.parse("<ENT0> is the capital of <ENT1> .")
SEEDS = (("rome", "italy"), ("paris", "france"), ("berlin", "germany"))
PARAMS = HarvestParams(candidates=20, max_entity_tokens=1)
TEXTS = {
    "lines": "(1) is the capital of (2).\n(1): rome\n(2): italy\n\n(1): <ENT0>\n(2): <ENT1>",
    "lines with sentences": "(1): rome\n(2): italy\nrome is the capital of italy.\n\n(1): <ENT0>\n(2): <ENT1>",
    "sentences": "- rome\nis the capital of italy\n\n- <ENT0>\nis the capital of <ENT1>",
    "chat": "[user]\nFill in the blanks so that the sentence is true.\nSentence: (1) is the capital of (2) .\n"
    "[assistant]\n(1): rome\n(2): italy\n"
    "[user]\nFill in the blanks so that the sentence is true.\nSentence: (1) is the capital of (2) .\n"
    "[assistant]\n(1): <ENT0>\n(2): <ENT1>",
}
CHAT = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module", params=[tiny_gpt2, tiny_llama])
def causal(request, tmp_path_factory):
    folder = request.param(tmp_path_factory.mktemp("causal"))
    return load(str(folder)), AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def chat_lm(tmp_path_factory):
    folder = tiny_gpt2(tmp_path_factory.mktemp("chat"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return load(str(folder)), tokenizer


def make_spec(setting="human", *prompts, seeds=SEEDS):
    return HarvestSpec("capital_of", prompts or (CAPITAL.text,), seeds, setting, params=PARAMS)


def chosen(lm, spec):
    return choose_prompts(PromptSource(spec, lm, encode_seeds(spec.seed_tuples, lm), None, ignore))


@pytest.mark.parametrize("form", FORMS)
def test_form_of_an_example(form):
    prompt = with_examples(CAPITAL, SEEDS[:1], form)

    assert prompt.text == TEXTS[form]
    assert is_in_lines(prompt)


@pytest.mark.parametrize("text", ["the capital of <ENT1> is <ENT0> .", "<ENT0> and <ENT1> are opposites ."])
def test_sentences_do_not_suit_other_slot_orders_or_words_after_the_last_slot(text):
    assert with_examples(PromptTemplate.parse(text), SEEDS, "sentences") is None


def test_three_slots():
    prompt = PromptTemplate.parse("<ENT0> buys <ENT1> from <ENT2> .")

    written = with_examples(prompt, [("she", "milk", "him")], "sentences")

    assert written.text == "- she\nbuys milk\nfrom him\n\n- <ENT0>\nbuys <ENT1>\nfrom <ENT2>"
    assert is_in_lines(written)


@pytest.mark.parametrize(
    "text",
    [
        CAPITAL.text,
        "(1): <ENT0>\n(2): <ENT1>",  # no example
        "a\n<ENT1>\n<ENT0>",
        "a\n<ENT0> b\n<ENT1>",
        "a\n<ENT0>\n<ENT1> .",
    ],
)
def test_other_prompts_are_not_in_lines(text):
    assert not is_in_lines(PromptTemplate.parse(text))


def test_a_prompt_in_lines_is_not_changed():
    by_hand = PromptTemplate.parse("Capitals\n\nCity: <ENT0>\nCountry: <ENT1>")

    assert with_examples(by_hand, SEEDS, "lines") == by_hand


@pytest.mark.parametrize("form", ["lines", "lines with sentences", "sentences"])
def test_lm_reads_the_text_of_the_prompt(causal, form):
    lm, tokenizer = causal
    prompt = with_examples(CAPITAL, SEEDS, form)
    rome, italy = (lm.encode_entity(entity) for entity in SEEDS[0])

    query = lm.query(lm.encode_prompt(prompt), (1, 1), (*rome, *lm.entity_end, *italy))

    assert list(query.ids) == tokenizer(prompt.fill(SEEDS[0])).input_ids


def test_chat_template_receives_the_turns(chat_lm):
    lm, tokenizer = chat_lm
    prompt = with_examples(CAPITAL, SEEDS[:1], "chat")

    query = lm.query(lm.encode_prompt(prompt), (1, 1), ())

    (_, first), (_, answer), *_ = turns(prompt.text)
    text = f"<user>{first}<assistant>{answer}<user>{first}<assistant>(1):"
    assert list(query.ids) == tokenizer(text, add_special_tokens=False).input_ids


def test_permutations_are_distinct_reproducible_and_not_the_given_order():
    orders = permutations(SEEDS, 12, random.Random(0))

    assert len(set(orders)) == len(orders) == 5  # 3! - 1
    assert SEEDS not in orders
    assert orders == permutations(SEEDS, 12, random.Random(0))
    assert len(permutations(SEEDS, 2, random.Random(0))) == 2


def test_form_and_weights_follow_from_held_out_seed_tuples(causal):
    lm, _ = causal
    spec = make_spec("human", CAPITAL.text, "the capital of <ENT1> is <ENT0> .")

    prompts = chosen(lm, spec)

    means, texts = [], []
    for text in spec.initial_prompts:
        base = PromptTemplate.parse(text)
        by_form = {
            form: np.mean([held_out(lm, base, example, form) for example in SEEDS])
            for form in FORMS
            if form != "chat" and with_examples(base, (), form)
        }
        best = max(by_form, key=by_form.get)
        means.append(by_form[best])
        texts.append(with_examples(base, SEEDS, best).text)
    assert [prompt.text for prompt in prompts.weighted] == texts
    assert [prompt.compatibility for prompt in prompts.weighted] == pytest.approx(means, abs=1e-5)
    assert prompts.prompt_set.weights == pytest.approx(prompt_weights(np.array(means)), abs=1e-5)


def held_out(lm, base, example, form):
    others = [other for other in SEEDS if other != example]
    encoded = lm.encode_prompt(with_examples(base, others, form))
    return compatibilities(lm, [encoded], [tuple(map(lm.encode_entity, example))], PARAMS.alpha, 8, lambda: None)[0, 0]


def test_chat_is_a_form_of_lms_with_chat_template(chat_lm, causal, monkeypatch):
    measured = []

    def record(source, shown, example, tick):
        measured.append(shown.form)
        return 0.0 if shown.form == "chat" else -1.0

    monkeypatch.setattr("kgharvest.engine.prompts.strategies.held_out_compatibility", record)

    assert chosen(chat_lm[0], make_spec()).weighted[0].text.startswith("[user]\n")
    assert set(measured) == set(FORMS)
    measured.clear()
    chosen(causal[0], make_spec())
    assert set(measured) == set(FORMS) - {"chat"}


def test_text_of_a_prompt_restores_its_conditional(chat_lm):
    prompts = chosen(chat_lm[0], make_spec("multi"))

    restored = [chat_lm[0].encode_prompt(PromptTemplate.parse(prompt.text)) for prompt in prompts.weighted]

    assert tuple(restored) == prompts.prompt_set.prompts


def test_multi_adds_permutations_of_the_examples(causal):
    lm, _ = causal

    human, multi, top1 = (chosen(lm, make_spec(setting)) for setting in ("human", "multi", "top1"))

    assert len(human.weighted) == 1
    assert len({prompt.text for prompt in multi.weighted}) == 1 + 5
    assert multi.weighted[0].text == human.weighted[0].text
    assert top1.weighted[0].text == max(multi.weighted, key=lambda prompt: prompt.weight).text
    assert multi.templates == (CAPITAL,)  # the words of the examples can be entities
    assert multi.notices == ()


@pytest.mark.parametrize("order", ["mtl", "consistency"])
def test_shown_tuples_are_left_out_and_counted(causal, order):
    lm, _ = causal
    params = replace(PARAMS, order=order)
    found = harvest(make_spec(), lm).tuples[:3]
    seeds = tuple(scored.surface for scored in found)

    prepared = prepare(make_spec(seeds=seeds), lm)
    result = harvest_prepared(prepared, params, lm, InTurn(ignore))

    assert prepared.prompts.examples == seeds
    assert prepared.comprehension.seed_scores == tuple(zip(seeds, prepared.prompts.example_scores, strict=True))
    assert prepared.comprehension.shows_examples
    assert not {scored.entities for scored in found} & {scored.entities for scored in result.tuples}
    everything = harvest_prepared(
        replace(prepared, prompts=replace(prepared.prompts, examples=())), params, lm, InTurn(ignore)
    )
    n_shown = sum(scored.entities in {other.entities for other in found} for scored in everything.tuples)
    assert result.rejected.get("example", 0) == n_shown
    assert read_prepared(write_prepared(prepared, params)) == (prepared, params)


NEGATIVES = (("milan", "italy"), ("lyon", "france"))
DENIALS = "It is not true that milan is the capital of italy.\nIt is not true that lyon is the capital of france.\n"


@pytest.mark.parametrize("form", FORMS)
def test_negative_seed_tuples_are_denied_before_the_examples(form):
    prompt = with_examples(CAPITAL, SEEDS[:1], form, NEGATIVES)

    before, start = ("[user]\n", "") if form == "chat" else ("", "\n")
    assert prompt.text == f"{before}{DENIALS}{start}{TEXTS[form].removeprefix(before)}"
    assert is_in_lines(prompt)


def test_denials_belong_to_the_first_user_message():
    (_, first), (_, answer), (_, second), _ = turns(with_examples(CAPITAL, SEEDS[:1], "chat", NEGATIVES).text)

    assert first == DENIALS + second
    assert answer == "(1): rome\n(2): italy"


@pytest.mark.parametrize("setting", ["human", "top1", "multi"])
def test_every_prompt_denies_the_negative_seed_tuples(causal, setting):
    lm, _ = causal

    prompts = chosen(lm, replace(make_spec(setting), negative_seed_tuples=NEGATIVES))

    assert all(prompt.text.startswith(DENIALS) for prompt in prompts.weighted)
    assert prompts.examples == SEEDS + NEGATIVES  # the harvest omits them
    assert prompts.notices == ()
    assert len(prompts.example_scores) == len(SEEDS)


def test_harvest_omits_negative_seed_tuples_and_scores_seed_tuples(causal):
    lm, _ = causal
    first = harvest(make_spec(), lm).tuples[0]
    spec = replace(make_spec(), negative_seed_tuples=(first.surface,))

    prepared, result = prepare(spec, lm), harvest(spec, lm)

    assert [seed for seed, _ in prepared.comprehension.seed_scores] == list(SEEDS)
    assert result.tuples
    assert first.entities not in {scored.entities for scored in result.tuples}


def test_negative_seed_tuples_are_omitted_before_seed_tuples(chat_lm, monkeypatch):
    lm, _ = chat_lm
    spec = replace(make_spec(), negative_seed_tuples=NEGATIVES)

    for n_seeds, n_negatives in ((3, 2), (3, 1), (3, 0), (2, 0)):
        shown = SEEDS[:n_seeds], NEGATIVES[:n_negatives]
        monkeypatch.setattr(lm, "max_tokens", longest(lm, *shown))
        assert chosen(lm, spec).examples == shown[0] + shown[1]


def test_masked_lms_are_shown_no_examples(tmp_path):
    lm = load(str(tiny_bert(tmp_path)))

    prompts, other = (
        chosen(lm, replace(make_spec(seeds=SEEDS[:2]), negative_seed_tuples=negatives)) for negatives in ((), NEGATIVES)
    )

    assert [prompt.text for prompt in prompts.weighted] == [CAPITAL.text]
    assert prompts.examples == ()
    assert [notice.code for notice in other.notices] == ["unused_negative_seed_tuples"]
    assert replace(other, notices=()) == prompts  # and so they do nothing


def test_negative_seed_tuples_in_questions_of_chat_models_are_used(tmp_path):
    spec = replace(make_spec("llm", seeds=SEEDS[:2]), prompts=(CAPITAL.text,), negative_seed_tuples=NEGATIVES)

    assert chosen(load(str(tiny_bert(tmp_path))), spec).notices == ()


def test_examples_that_do_not_fit_are_omitted(chat_lm, monkeypatch):
    lm, _ = chat_lm
    n_tokens = {n: longest(lm, SEEDS[:n]) for n in (0, 2, 3)}

    for limit, expected in ((n_tokens[3], 3), (n_tokens[3] - 1, 2), (n_tokens[2] - 1, 0)):
        monkeypatch.setattr(lm, "max_tokens", limit)
        assert len(chosen(lm, make_spec()).examples) == expected


def longest(lm, examples, negatives=()):
    """Return the number of ids of the longest query about any form with these examples."""
    prompts = [CAPITAL, *(FewShot(CAPITAL, examples, form, negatives).template() for form in FORMS if examples)]
    pattern = max(tuple(map(len, seed)) for seed in encode_seeds(SEEDS, lm))
    filled = (0,) * (sum(pattern) + len(pattern) * len(lm.entity_end) - 1)
    return max(len(lm.query(lm.encode_prompt(prompt), pattern, filled).ids) for prompt in prompts)
