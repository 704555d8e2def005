"""Loading of LMs: detected family, recorded revision, and error messages."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import huggingface_hub.constants
import huggingface_hub.utils._http
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertModel,
)

from kgharvest.engine.language_models.causal import CausalLM
from kgharvest.engine.language_models.encoder_decoder import InfillingLM
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.language_models.served.names import served_name
from kgharvest.engine.language_models.served.served_lm import load_served
from kgharvest.engine.types import BrokenModel, EngineError, ModelNotFound, UnsupportedModel
from tests.kgharvest.engine.tiny_models import tiny_bert

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_bert(tmp_path / "tiny")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up an offline hub with the tiny LM `lab/tiny` cached at COMMIT, branch `main`."""
    repository = tmp_path / "cache" / "models--lab--tiny"
    tiny_bert(repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return repository


def set_config(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("family", "kind"), [("bert", MaskedLM), ("bart", InfillingLM), ("gpt2", CausalLM), ("llama", CausalLM)]
)
def test_family_is_detected_from_config(family, kind, tiny):
    assert isinstance(tiny(family), kind)


def test_local_folder_is_not_mistaken_for_hub_model(hub, tmp_path, monkeypatch):
    tiny_bert(tmp_path / "lab" / "tiny")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ModelNotFound, match=r"Use \./lab/tiny for the folder"):
        load("lab/tiny")


def test_name_and_revision_are_recorded(folder):
    lm = load(str(folder), revision="v1")

    assert (lm.name, lm.revision) == (str(folder), "v1")


def test_folder_without_revision_is_identified_by_weights(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    other = tiny_bert(tmp_path / "other", seed=1)

    assert load(str(folder)).revision == load(str(copy)).revision != load(str(other)).revision
    assert load(str(folder)).revision.startswith("sha256:")


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_hub_model_records_commit(hub, revision):
    assert load("lab/tiny", revision=revision).revision == COMMIT


def test_unreachable_hub_is_not_retried(hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr(huggingface_hub.utils._http.time, "sleep", lambda s: pytest.fail("The hub is contacted again."))

    assert load("lab/tiny").revision == COMMIT
    with pytest.raises(ModelNotFound, match="'lab/none' is neither"):
        load("lab/none")


@pytest.mark.parametrize("suffix", ["#name", "#lab/name@nowhere"])
def test_missing_tokenizer_error_explains_name_syntax(hub, suffix):
    name = f"http://127.0.0.1:1/v1{suffix}"
    missing, model = suffix.lstrip("#").rpartition("@")[2], suffix.lstrip("#").partition("@")[0]

    with pytest.raises(ModelNotFound, match=rf"^The tokenizer '{missing}' of .*after @, .*#{model}@TOKENIZER\.$"):
        load_served(served_name(name), name, None, "")


def test_missing_hub_revision_is_reported(hub):
    with pytest.raises(ModelNotFound, match="'lab/tiny' is neither"):
        load("lab/tiny", revision="v9")


@pytest.mark.parametrize("name", ["nobody/nothing", "nothing", "no/such/folder", "", "a b/../c"])
def test_unknown_model_name_is_reported(hub, name):
    with pytest.raises(ModelNotFound, match="download the model"):
        load(name)


def test_empty_folder_is_refused(tmp_path):
    with pytest.raises(ModelNotFound, match="not contain a complete model"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    "missing", [["config.json"], ["model.safetensors"], ["tokenizer.json", "tokenizer_config.json"]]
)
def test_incomplete_folder_is_refused(folder, missing):
    for file in missing:
        (folder / file).unlink()

    with pytest.raises(ModelNotFound, match="not contain a complete model"):
        load(str(folder))


@pytest.mark.parametrize("damage", [lambda content: content[: len(content) // 2], lambda content: b"junk" * 100])
@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_damaged_file_is_reported(folder, file, damage):
    path = folder / file
    path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(ModelNotFound, match="not contain a complete model"):
        load(str(folder))


def without_unknown_token(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"unk_token": None}))


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weights": print}))


def odd_index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": ["a"]}')


@pytest.mark.parametrize(
    "damage",
    [
        pickled,
        odd_index,
        without_unknown_token,
        lambda folder: set_config(folder, num_attention_heads=-1),
        lambda folder: set_config(folder, hidden_size="many"),
        lambda folder: set_config(folder, hidden_act="wonder"),
        lambda folder: (folder / "config.json").write_text("[]"),
        lambda folder: (folder / "tokenizer.json").write_text('{"model": {}}'),
        lambda folder: (folder / "tokenizer_config.json").write_text("7"),
    ],
)
def test_invalid_model_files_are_reported(folder, damage):
    damage(folder)

    with pytest.raises(ModelNotFound, match="not contain a complete model"):
        load(str(folder))


def test_weight_shape_mismatch_is_reported(folder):
    set_config(folder, hidden_size=48)

    with pytest.raises(ModelNotFound, match="not contain a complete model"):
        load(str(folder))


@pytest.mark.parametrize("model_type", ["wonder", None])
def test_unknown_model_type_is_unsupported(folder, model_type):
    set_config(folder, model_type=model_type)

    with pytest.raises(UnsupportedModel, match="no model_type supported by transformers"):
        load(str(folder))


def test_unreadable_quantized_checkpoint_is_unsupported(folder):
    set_config(folder, quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128})

    with pytest.raises(UnsupportedModel, match="is saved in a quantized format"):
        load(str(folder))


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (BertModel, r"lacks .* weights .* pretrained to fill in blanks"),
        (AutoModelForSequenceClassification, r"is a BertForSequenceClassification"),
    ],
)
def test_checkpoint_without_lm_head_is_unsupported(folder, kind, sentence):
    kind.from_pretrained(folder).save_pretrained(folder)

    with pytest.raises(UnsupportedModel, match=sentence):
        load(str(folder))


def test_tokenizer_without_mask_is_unsupported(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.mask_token = None
    tokenizer.save_pretrained(folder)

    with pytest.raises(UnsupportedModel, match="no mask token"):
        load(str(folder))


def test_pickled_weights_are_loaded(folder):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")

    assert load(str(folder)).vocab_size == len(AutoTokenizer.from_pretrained(folder))


def test_unavailable_device_is_reported(folder):
    with pytest.raises(EngineError, match="Device 'cuda:99' is not available"):
        load(str(folder), device="cuda:99")


def test_out_of_memory_error_names_device(folder, monkeypatch):
    def run_out(*args: object, **kwargs: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.nn.Module, "to", run_out)

    with pytest.raises(BrokenModel, match="does not fit into the memory of cpu"):
        load(str(folder))


def test_tokenizer_padding_and_truncation_settings_are_ignored(folder, tmp_path):
    words = "dog cat fish"
    expected = load(str(folder)).encode_entity(words)
    trained = Path(shutil.copytree(folder, tmp_path / "trained"))
    tokenizer = AutoTokenizer.from_pretrained(trained)
    tokenizer.backend_tokenizer.enable_padding(length=8)
    tokenizer.backend_tokenizer.enable_truncation(2)
    tokenizer.save_pretrained(trained)

    lm = load(str(trained))

    assert lm.encode_entity(words) == expected
    assert lm.canonical_texts([expected]) == [words]


def test_loading_keeps_torch_random_state(folder):
    state = torch.get_rng_state()

    load(str(folder))

    assert torch.equal(torch.get_rng_state(), state)
