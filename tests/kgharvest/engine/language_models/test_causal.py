"""Causal LMs: instruction, one line per entity, and the line end as part of the entity."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from kgharvest.engine.language_models.base import Query
from kgharvest.engine.language_models.causal import CausalLM, longest_texts, runs_that_share
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.prompts.few_shot import instruction
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import UnsupportedModel
from tests.kgharvest.engine.tiny_models import tiny_gpt2, tiny_llama

CAPITAL = PromptTemplate.parse("<ENT1>s capital is <ENT0> .")
FILLED = """Fill in the blanks so that the sentence is true.
Sentence: (2)s capital is (1) .
(1): rome
(2): italy
"""
CHAT = (
    "{{ bos_token }}{% for message in messages %}({{ message.role }}) {{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}(assistant) {% endif %}"
)


@pytest.fixture(params=["gpt2", "llama"])
def family(request):
    return request.param


@pytest.fixture
def rome_italy(lm):
    return tuple(token for entity in ("rome", "italy") for token in lm.encode_entity(entity) + lm.entity_end)


def test_instruction_shows_numbered_blanks_for_slots():
    assert instruction(CAPITAL) == "\n".join(FILLED.split("\n")[:2]) + "\n"


def test_query_ids_match_tokenized_instruction_and_lines(family, lm, folder_of, rome_italy):
    tokenizer = AutoTokenizer.from_pretrained(folder_of(family))

    query = lm.query(lm.encode_prompt(CAPITAL), (1, 1), rome_italy)

    assert list(query.ids) == tokenizer(FILLED).input_ids


@pytest.mark.parametrize(
    ("filled", "text"),
    [
        (0, "(1):"),
        (1, "(1): rome"),
        (2, "(1): rome\n(2):"),
        (3, "(1): rome\n(2): italy"),
    ],
)
def test_query_ends_after_written_text(family, lm, folder_of, rome_italy, filled, text):
    tokenizer = AutoTokenizer.from_pretrained(folder_of(family))

    query = lm.query(lm.encode_prompt(CAPITAL), (1, 1), rome_italy[:filled])

    assert list(query.ids) == tokenizer(instruction(CAPITAL) + text).input_ids
    assert query.position == len(query.ids) - 1


def test_patterns_with_same_prefix_share_query(lm, rome_italy):
    encoded = lm.encode_prompt(CAPITAL)

    assert lm.query(encoded, (1, 1), rome_italy[:2]) == lm.query(encoded, (1, 2), rome_italy[:2])
    assert lm.query(encoded, (1, 1), ()) == lm.query(encoded, (2, 2), ())


def test_entity_ends_with_line_break(family, lm, folder_of):
    tokenizer = AutoTokenizer.from_pretrained(folder_of(family))

    assert tokenizer.decode(lm.entity_end) == "\n"
    assert not lm.continues_entity[list(lm.entity_end)].any()
    assert not lm.starts_entity[list(lm.entity_end)].any()


def test_line_probability_includes_its_end(family, lm, folder_of, rome_italy):
    """Compare with the sum of next-token log-probabilities from one forward pass over the whole text."""
    model = AutoModelForCausalLM.from_pretrained(folder_of(family)).eval()
    encoded = lm.encode_prompt(CAPITAL)
    ids = lm.query(encoded, (1, 1), rome_italy).ids
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0], dim=-1)
    start = len(encoded.segments[0])
    expected = logprobs[start - 1, ids[start]] + logprobs[start, ids[start + 1]]  # " rome", "\n"

    queries = [lm.query(encoded, (1, 1), rome_italy[:filled]) for filled in (0, 1)]
    answers = torch.log_softmax(lm.logits(lm.vectors(queries, 8, lambda: None)), dim=-1)

    torch.testing.assert_close(answers[0, rome_italy[0]] + answers[1, rome_italy[1]], expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("make", [tiny_gpt2, tiny_llama])
def test_chat_template_receives_instruction_as_user_message(make, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(make(tmp_path))
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(tmp_path)
    lm = load(str(tmp_path))

    query = lm.query(lm.encode_prompt(CAPITAL), (1, 1), ())

    text = f"{tokenizer.bos_token}(user) {instruction(CAPITAL)}(assistant) (1):"
    assert list(query.ids) == tokenizer(text, add_special_tokens=False).input_ids
    assert query.ids.count(tokenizer.bos_token_id) == 1


def test_chat_template_receives_fixed_date(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_gpt2(tmp_path))
    tokenizer.chat_template = "{% if not date_string %}{% set date_string = strftime_now('%d') %}{% endif %}" + (
        "date: {{ date_string }}. " + CHAT
    )
    tokenizer.save_pretrained(tmp_path)
    lm = load(str(tmp_path))

    text = tokenizer.decode(lm.encode_prompt(CAPITAL).segments[0])

    assert text.startswith("date: 1 Jan 2025. ")


def test_tokenizer_without_line_breaks_is_unsupported(tmp_path, folder_of):
    model = AutoModelForCausalLM.from_pretrained(folder_of("gpt2"))
    tokenizer = AutoTokenizer.from_pretrained(folder_of("xlm_roberta"))

    with pytest.raises(UnsupportedModel, match="no line break"):
        CausalLM(model, tokenizer, "tiny", None)


def test_mixed_prompts_are_answered_as_separately(lm, rome_italy):
    prompts = [lm.encode_prompt(PromptTemplate.parse(f"<ENT1> {middle} <ENT0> .")) for middle in ("is", "in", "is a")]
    queries = [lm.query(prompt, (1, 1), rome_italy[:filled]) for filled in (0, 1, 2, 3) for prompt in prompts]

    vectors = lm.vectors(queries, 256, lambda: None)

    alone = torch.cat([lm.vectors([query], 1, lambda: None) for query in queries])
    torch.testing.assert_close(vectors, alone, atol=1e-5, rtol=1e-5)


def test_a_text_answers_the_queries_that_it_begins_with():
    queries = [Query(ids, len(ids) - 1, 1) for ids in [(1, 2), (1, 2, 3, 4), (1, 3), (1, 2, 3), (1, 2)]]
    other_prompt = Query((1, 2, 3), 2, 2)

    longest = longest_texts([*queries, other_prompt])

    assert longest == [queries[1], queries[1], queries[2], queries[1], queries[1], other_prompt]


def test_prompts_with_one_slot_are_answered_as_separately(lm):
    prompts = [lm.encode_prompt(PromptTemplate.parse(f"{word} is a <ENT0>")) for word in ("rome", "roma")]
    queries = [
        lm.query(prompt, (2,), (*lm.encode_entity("italy"), token)[:n_filled])
        for prompt in prompts
        for n_filled in range(3)
        for token in (5, 6)
    ]

    vectors = lm.vectors(queries, 256, lambda: None)

    alone = torch.cat([lm.vectors([query], 1, lambda: None) for query in queries])
    torch.testing.assert_close(vectors, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(1, 2, 3, 4)], [(1, 0)]),
        ([(1, 2, 3, 4), (1, 2, 3, 5)], [(2, 3)]),
        ([(1, 2), (1, 2, 3)], [(2, 1)]),  # the last token is always read, because its output is required
        ([(1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 9, 9)], [(3, 2)]),
        ([(1, 2, 3, 4), (1, 2, 3, 5), (1, 8, 9, 9)], [(2, 3), (1, 0)]),
        ([(1, 2, 3, 4), (7, 7, 7, 7), (7, 7, 8, 8)], [(1, 0), (2, 2)]),
    ],
)
def test_texts_sharing_at_least_half_form_one_run(rows, expected):
    runs = runs_that_share([Query(ids, len(ids) - 1) for ids in rows])

    assert [(len(run), n_shared) for run, n_shared in runs] == expected


def test_shared_beginning_is_read_once(lm, rome_italy):
    prompt = lm.encode_prompt(CAPITAL)
    queries = [lm.query(prompt, (1, 1), (token, *rome_italy[1:3])) for token in range(5, 9)]
    lm.n_read.clear()

    vectors = [lm.vectors(queries, 2, lambda: None) for _ in range(2)]

    assert lm.n_read["sequences"] == 8
    assert queries[0].ids[: queries[0].n_shared + 1] == prompt.segments[0]
    torch.testing.assert_close(vectors[0], vectors[1], atol=0, rtol=0)
    whole = lm._hidden(torch.tensor([query.ids for query in queries]))[:, -1]
    torch.testing.assert_close(vectors[0], whole, atol=1e-5, rtol=1e-5)
