"""Seq2seq and translation paraphrasers with a tiny T5 and a tiny BART."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from kgharvest.engine.language_models.loading import load_seq2seq
from kgharvest.engine.prompts.creation import Seq2SeqParaphraser, TranslationParaphraser
from kgharvest.engine.types import ModelNotFound, UnsupportedModel
from tests.kgharvest.engine.tiny_models import tiny_bart, tiny_bert

SENTENCE = "paris is the capital of france ."
ENTITIES = ["paris", "france"]


def tiny_t5(folder: Path, text: str = SENTENCE) -> Path:
    """Save a tiny T5 with random weights and a vocabulary of the words of `text`."""
    vocabulary = ["<pad>", "</s>", "<unk>", "paraphrase:", *sorted(set(text.split()))]
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(vocabulary)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(vocabulary), d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_t5(tmp_path_factory.mktemp("t5")))


def test_beams_are_distinct_and_deterministic(t5: str) -> None:
    runs = [Seq2SeqParaphraser(t5).paraphrase(SENTENCE, ENTITIES) for _ in range(2)]

    assert runs[0] == runs[1]
    assert len(runs[0]) == len(set(runs[0])) > 1
    assert SENTENCE not in runs[0]


def test_samples_depend_on_seed_and_keep_torch_random_state(t5: str) -> None:
    before = torch.random.get_rng_state()

    first, repeated, other = (Seq2SeqParaphraser(t5, seed=seed).paraphrase(SENTENCE, ENTITIES) for seed in (1, 1, 2))

    assert first == repeated != other
    assert torch.equal(torch.random.get_rng_state(), before)


def test_prefix_reaches_model(t5: str) -> None:
    with_prefix = Seq2SeqParaphraser(t5, prefix="paraphrase: ").paraphrase(SENTENCE, ENTITIES)

    assert with_prefix != Seq2SeqParaphraser(t5).paraphrase(SENTENCE, ENTITIES)


def test_log_probabilities_match_tokenwise_computation(t5: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_seq2seq(t5)
    outputs = torch.tensor([[0, 5, 6, 4, 1, 0], [0, 7, 1, 0, 0, 0]])
    monkeypatch.setattr(model, "_beam", lambda text, n: outputs)
    inputs = model._encoded(SENTENCE).input_ids

    def naive(output: list[int]) -> float:
        total = 0.0
        for n in range(1, output.index(1) + 1):
            logits = model._model(input_ids=inputs, decoder_input_ids=torch.tensor([output[:n]])).logits[0, -1]
            total += float(logits.log_softmax(-1)[output[n]])
        return total

    expected = sorted(map(naive, outputs.tolist()), reverse=True)
    assert [logprob for _, logprob in model.beam_with_logprobs(SENTENCE, 2)] == pytest.approx(expected, abs=1e-5)


def test_log_probabilities_of_targets_match_those_of_beams(t5: str, tmp_path: Path) -> None:
    for folder in (t5, str(tiny_bart(tmp_path))):
        model = load_seq2seq(folder)
        texts, logprobs = ["france .", "paris"], model.target_logprobs(SENTENCE, ["france .", "paris"])

        inputs = model._encoded(SENTENCE)
        for text, logprob in zip(texts, logprobs, strict=True):
            labels = model._tokenizer(text_target=[text], return_tensors="pt").input_ids
            loss = model._model(**inputs, labels=labels).loss  # the mean over tokens
            assert logprob == pytest.approx(-float(loss) * labels.numel(), abs=1e-4)


def test_back_translation_gives_different_sentences(t5: str, tmp_path: Path) -> None:
    paraphraser = TranslationParaphraser(f"{t5},{tiny_bart(tmp_path)}")

    first, repeated = (paraphraser.paraphrase(SENTENCE, ENTITIES) for _ in range(2))

    assert first == repeated != []
    assert SENTENCE not in first


def test_bart_paraphrases(tmp_path: Path) -> None:
    assert Seq2SeqParaphraser(str(tiny_bart(tmp_path)), seed=0).paraphrase(SENTENCE, ENTITIES)


def test_name_contains_model_and_loading_is_lazy() -> None:
    assert Seq2SeqParaphraser("somebody/paraphraser").name == "seq2seq:somebody/paraphraser"


def test_folder_without_model_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="not contain a complete model"):
        Seq2SeqParaphraser(str(tmp_path)).paraphrase(SENTENCE, ENTITIES)


def test_model_without_encoder_decoder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="not an encoder-decoder"):
        Seq2SeqParaphraser(str(tiny_bert(tmp_path))).paraphrase(SENTENCE, ENTITIES)
