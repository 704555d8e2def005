"""LMs of many types: detected family, logits identical to transformers, and refused models."""

from __future__ import annotations

import json

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaForSequenceClassification,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    ViTConfig,
    ViTForImageClassification,
)

from kgharvest.engine.language_models.loading import load
from kgharvest.engine.language_models.networks.heads import head_on_hidden, network_of
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BadPrompt, UnsupportedModel
from tests.kgharvest.engine.tiny_models import tiny_bert, tiny_llama
from tests.kgharvest.engine.tiny_types import N_SENTINELS, TYPES
from tests.sampling import only

PROMPTS = [PromptTemplate.parse(text) for text in ("<ENT0> is the capital of <ENT1> .", "in <ENT1> the <ENT0> can .")]


@pytest.fixture(params=TYPES)
def family(request):
    return request.param


def questions(lm):
    """Return queries for every token of two tuples in every prompt. Many queries share a prefix."""
    queries = []
    for names in (("rome fish", "italy"), ("paris", "italy")):
        entities = [lm.encode_entity(entity) for entity in names]
        pattern, tokens = tuple(map(len, entities)), tuple(t for ids in entities for t in ids + lm.entity_end)
        encoded = [lm.encode_prompt(prompt) for prompt in PROMPTS]
        queries += [lm.query(prompt, pattern, tokens[:filled]) for prompt in encoded for filled in range(len(tokens))]
    return queries


def test_family_and_logits_match_transformers(family, lm, folder_of):
    """Compare with a plain forward pass per query, with the model's full head."""
    model = TYPES[family].auto_class.from_pretrained(folder_of(family)).eval()
    queries = questions(lm)

    logits = lm.logits(lm.vectors(queries, 64, lambda: None))

    assert type(lm).__name__ == TYPES[family].family
    with torch.no_grad():
        expected = torch.stack([plain_logits(model, query) for query in queries])
    assert (torch.log_softmax(expected, -1).amax(-1) - torch.log_softmax(expected, -1).amin(-1)).min() > 1
    torch.testing.assert_close(logits, expected, atol=5e-5, rtol=1e-5)


def plain_logits(model, query):
    ids = torch.tensor([query.ids])
    if not model.config.is_encoder_decoder:
        return model(input_ids=ids).logits[0, query.position]
    begin = query.position
    return model(input_ids=ids[:, :begin], decoder_input_ids=ids[:, begin:]).logits[0, -1]


@pytest.mark.parametrize("family", only(["gemma2", "t5", "deberta_v3"], TYPES))
def test_averaging_vectors_averages_logits_of_affine_lms(family, lm):
    vectors = lm.vectors(questions(lm)[:3], 8, lambda: None)
    weights = torch.tensor([0.5, 0.3, 0.2])

    difference = lm.logits((weights @ vectors)[None])[0] - weights @ lm.logits(vectors)

    assert lm.is_affine == (family != "gemma2")  # Gemma 2 caps its logits
    assert bool(difference.abs().max() < 1e-4) == lm.is_affine


def test_each_blank_has_a_sentinel_that_ends_the_entity(tiny, folder_of):
    lm, tokenizer = tiny("t5"), AutoTokenizer.from_pretrained(folder_of("t5"))
    prompt = lm.encode_prompt(PromptTemplate.parse("the <ENT1> of <ENT0> ."))
    (rome,) = lm.encode_entity("rome")

    first = lm.query(prompt, (1, 1), ())
    second = lm.query(prompt, (1, 1), (rome, *lm.entity_end))

    decoded = ["<pad>", "<extra_id_0>"]
    tokens = tokenizer.convert_ids_to_tokens
    assert tokens(first.ids) == ["▁the", "<extra_id_1>", "▁of", "<extra_id_0>", "▁", ".", "</s>", *decoded]
    assert tokens(second.ids) == ["▁the", "<extra_id_0>", "▁of", "▁rome", "▁", ".", "</s>", *decoded]
    assert tokenizer("the <extra_id_1> of <extra_id_0> .").input_ids == list(first.ids[:-2])
    assert tokenizer.decode(lm.entity_end) == "<extra_id_1>"


def test_prompt_with_too_many_blanks_is_refused(tiny):
    text = " in ".join(f"<ENT{slot}>" for slot in range(N_SENTINELS + 1))

    with pytest.raises(BadPrompt, match="at most 4 blanks"):
        tiny("t5").encode_prompt(PromptTemplate.parse(text))


# Refused models


def marian(folder):
    config = MarianConfig(vocab_size=60, d_model=32, encoder_layers=1, decoder_layers=1, pad_token_id=0)
    MarianMTModel(config).save_pretrained(tiny_bert(folder))
    drop_mask(folder)


def vit(folder):
    config = ViTConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    ViTForImageClassification(config).save_pretrained(tiny_bert(folder))
    change_config(folder, architectures=["ViTModel"])


def reward_model(folder):
    model = LlamaForSequenceClassification.from_pretrained(tiny_llama(folder))
    model.save_pretrained(folder)


def bytes_alone(folder):
    tiny_llama(folder)
    vocab = {chr(33 + index): index for index in range(60)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(vocab, [])), unk_token="!")
    tokenizer.save_pretrained(folder)


def another_tokenizer(folder):
    tiny_bert(folder)
    AutoTokenizer.from_pretrained(tiny_bert(folder / "large", words=[f"word{n}" for n in range(99)])).save_pretrained(
        folder
    )


def drop_mask(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.mask_token = None
    tokenizer.save_pretrained(folder)


def change_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (marian, r"of type marian has no mask token"),
        (vit, r"of type vit has no mask token"),
        (reward_model, r"is a LlamaForSequenceClassification"),
        (bytes_alone, r"does not mark word boundaries"),
        (another_tokenizer, r"has 1\d\d tokens, but the model has \d\d embeddings\."),
    ],
)
def test_unsupported_model_is_reported(build, sentence, tmp_path):
    build(tmp_path)

    with pytest.raises(UnsupportedModel, match=sentence):
        load(str(tmp_path))


def test_logits_not_derived_from_hidden_states_are_refused(folder_of):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder_of("qwen2"))).eval()
    model.register_forward_hook(lambda module, inputs, output: setattr(output, "logits", output.logits.sin()))

    with pytest.raises(UnsupportedModel, match="cannot be derived"):
        head_on_hidden(model, lambda ids: network_of(model)(input_ids=ids).last_hidden_state, "odd")
