"""Split, half-precision, and quantized LMs, and errors for missing hardware or packages.

Tests that split an LM are skipped if accelerate, which is not in the lock file, is not installed. The disk stands in
for additional GPUs: weights that exceed the memory limit are offloaded to it.
"""

from __future__ import annotations

import gc
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import transformers.integrations.accelerate as placing

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.language_models.loading import load, load_seq2seq
from kgharvest.engine.language_models.networks import devices
from kgharvest.engine.language_models.networks.heads import is_split
from kgharvest.engine.language_models.networks.placement import DTYPES, device_named, wants_gpu
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import BrokenModel, EngineError, UnsupportedModel
from tests.kgharvest.engine.tiny_models import tiny_bart, tiny_bert, tiny_gpt2, tiny_qwen3_moe
from tests.sampling import only

with_accelerate = pytest.mark.skipif(not find_spec("accelerate"), reason="accelerate is not installed")
OFFLOADED = ["bart", "gpt2", "llama", "qwen3_moe", "t5", "gemma2", "electra", "qwen2_5_vl"]
PROMPTS = [PromptTemplate.parse(text) for text in ("<ENT0> is the capital of <ENT1> .", "in <ENT1> the <ENT0> can .")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_bert(tmp_path / "tiny")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch):
    """Return a function that limits the memory available to LMs, in bytes."""

    def limit(n_bytes: float) -> None:
        monkeypatch.setattr(placing, "accelerate_max_memory", lambda most=None: {"cpu": int(n_bytes)})

    return limit


def size_of(folder: Path) -> int:
    return (folder / "model.safetensors").stat().st_size


def answers(lm) -> torch.Tensor:
    """Return log-probabilities of the first token, without entities and after the first entity."""
    first = lm.encode_entity("paris")
    queries = []
    for prompt in map(lm.encode_prompt, PROMPTS):
        queries += [lm.query(prompt, (len(first), 1), filled) for filled in ((), first + lm.entity_end)]
    return torch.log_softmax(lm.logits(lm.vectors(queries, 8, lambda: None)), dim=-1)


# Split LMs


@with_accelerate
def test_auto_device_in_memory_equals_cpu_bitwise(family, lm, folder_of):
    assert torch.equal(answers(load(str(folder_of(family)), device="auto")), answers(lm))


@with_accelerate
@pytest.mark.parametrize("family", only(["bart", "llama", "t5"], OFFLOADED))
def test_lm_offloaded_to_disk_answers_identically(family, tiny, folder_of, memory):
    memory(0.6 * size_of(folder_of(family)))

    split = load(str(folder_of(family)), device="auto")

    assert is_split(split._network)
    assert torch.equal(answers(split), answers(tiny(family)))


@with_accelerate
@pytest.mark.parametrize("family", ["distilbert", "albert", "modernbert"])
def test_split_masked_lm_answers_but_has_no_word_embeddings(family, tiny, folder_of, memory):
    memory(0.6 * size_of(folder_of(family)))

    split = load(str(folder_of(family)), device="auto")

    assert is_split(split._network)
    torch.testing.assert_close(answers(split), answers(tiny(family)), atol=1e-4, rtol=0)
    with pytest.raises(UnsupportedModel, match="split over several devices"):
        _ = split.word_embeddings


@with_accelerate
@pytest.mark.parametrize("family", ["bert", "deberta_v3"])
def test_unsplittable_model_is_refused(family, folder_of, memory):
    memory(0.6 * size_of(folder_of(family)))

    with pytest.raises(UnsupportedModel, match=r"cannot be split over devices|float32 and one device"):
        load(str(folder_of(family)), device="auto")


@with_accelerate
def test_spilled_weights_are_deleted_with_lm(tmp_path, memory):
    folder = tiny_qwen3_moe(tmp_path / "tiny")
    memory(0.6 * size_of(folder))
    lm = load(str(folder), device="auto")
    spilled = Path(lm._network.spilled_weights.name)

    assert list(spilled.glob("*experts*"))

    del lm
    gc.collect()
    assert not spilled.exists()


@with_accelerate
def test_split_lm_uses_large_batches(tmp_path, memory):
    """Every forward pass reads the offloaded weights from disk."""
    folder = tiny_gpt2(tmp_path / "tiny")
    memory(0.6 * size_of(folder))

    split = load(str(folder), device="auto")

    assert split._tokens_at_once > 1000 * load(str(folder))._tokens_at_once


@with_accelerate
def test_random_weights_match_on_auto_and_are_refused_if_split(folder, tmp_path, memory):
    drawn = [load(str(folder), device=device, random_seed=0) for device in ("auto", "cpu")]

    assert torch.equal(*map(answers, drawn))

    other = tiny_gpt2(tmp_path / "other")
    memory(0.6 * size_of(other))
    with pytest.raises(EngineError, match="omit the control"):
        load(str(other), device="auto", random_seed=0)


@with_accelerate
def test_split_paraphraser_answers_identically(tmp_path, memory):
    folder = tiny_bart(tmp_path / "tiny")
    plain = load_seq2seq(str(folder))
    memory(0.6 * size_of(folder))
    split = load_seq2seq(str(folder), device="auto")

    assert is_split(split._model)
    assert split.beam_with_logprobs("paris is in france", 3) == plain.beam_with_logprobs("paris is in france", 3)
    assert split.sample("paris is in france", 3, seed=1) == plain.sample("paris is in france", 3, seed=1)


def test_embedded_lm_on_auto_uses_one_device():
    folder = EMBEDDED_LMS["embedded-small"]

    assert torch.equal(answers(load_compact(folder, device="auto")).cpu(), answers(load_compact(folder)))


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, ValueError])
def test_out_of_memory_error_names_device(folder, monkeypatch, error):
    def run_out(*args: object, **kwargs: object) -> None:
        raise error("Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM")

    monkeypatch.setattr("transformers.AutoModelForMaskedLM.from_pretrained", run_out)

    with pytest.raises(BrokenModel, match="does not fit into the memory of cpu"):
        load(str(folder))


# Number formats


def test_float16_on_cpu_is_close_to_float32(family, lm, folder_of):
    half = load(str(folder_of(family)), dtype="float16")

    assert half.dtype == torch.float16
    assert (answers(half) - answers(lm)).abs().mean() < 0.05


@pytest.mark.parametrize("family", ["mamba"])
def test_float32_only_lm_refuses_float16(family, folder_of):
    with pytest.raises(UnsupportedModel, match="does not support float16 on cpu"):
        load(str(folder_of(family)), dtype="float16")


@pytest.mark.parametrize("dtype", ["int8", "nf4"])
@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_quantized_weights_require_nvidia_gpu(folder, dtype, device, monkeypatch):
    monkeypatch.setattr(devices, "find_spec", lambda package: object())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(EngineError, match=f"Weights in {dtype} require an NVIDIA GPU"):
        load(str(folder), device=device, dtype=dtype)


@pytest.mark.skipif(not find_spec("bitsandbytes"), reason="bitsandbytes is not installed")
@pytest.mark.parametrize("family", only(["bert", "t5"], ["bert", "roberta", "bart", "gpt2", "llama", "t5"]))
def test_quantized_lm_answers_are_close_and_random_weights_refused(family, tiny, folder_of, monkeypatch):
    """Run on the CPU, which users cannot select: bitsandbytes supports int8 for some layers there."""
    monkeypatch.setattr(devices, "check_dtype", lambda dtype, device: None)
    monkeypatch.setattr("kgharvest.engine.language_models.loading.check_dtype", lambda dtype, device: None)

    quantized = load(str(folder_of(family)), dtype="int8")

    assert {"Linear8bitLt"} <= {type(module).__name__ for module in quantized._network.modules()}
    assert (answers(quantized) - answers(tiny(family))).abs().mean() < 1
    with pytest.raises(EngineError, match="quantized weights"):
        load(str(folder_of(family)), dtype="int8", random_seed=0)


def test_unknown_dtype_error_lists_choices(folder):
    with pytest.raises(EngineError, match=r"Unknown dtype 'float12'. Choose one of float32, .*, int8, nf4"):
        load(str(folder), dtype="float12")


# Missing packages and devices


def test_missing_package_error_names_install_command(folder, monkeypatch):
    monkeypatch.setattr(devices, "find_spec", lambda package: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    with pytest.raises(EngineError, match=r"auto requires accelerate, .* pip install -r requirements-large\.txt"):
        load(str(folder), device="auto")
    for dtype in ("int8", "nf4"):
        with pytest.raises(EngineError, match=f"The dtype {dtype} requires accelerate"):
            devices.check_dtype(dtype, "cuda")

    monkeypatch.setattr(devices, "find_spec", lambda package: None if package == "bitsandbytes" else object())
    with pytest.raises(EngineError, match="The dtype int8 requires bitsandbytes"):
        devices.check_dtype("int8", "cuda")


def test_required_packages_are_pinned():
    pins = (Path(__file__).parents[4] / "requirements-large.txt").read_text()

    assert all(f"\n{package}==" in pins for package in ("accelerate", "bitsandbytes"))


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="the machine has Apple silicon")
def test_unavailable_mps_is_refused(folder):
    with pytest.raises(EngineError, match=r"Device 'mps' is not available"):
        load(str(folder), device="mps")


@pytest.mark.parametrize("name", ["tpu", "cuda:", "cuda:1234", "cuda:a", "auto:0", "meta", "", " cpu", "CPU"])
def test_unknown_device_names_are_refused(name, folder):
    with pytest.raises(EngineError, match="Choose one of cpu, cuda, cuda:N, mps, or auto"):
        device_named(name)
    with pytest.raises(EngineError, match="Unknown device"):
        load(str(folder), device=name)


@pytest.mark.parametrize(("device", "is_wanted"), [("cpu", False), ("mps", False), ("cuda:1", True), ("auto", True)])
def test_wants_gpu_is_true_for_cuda_and_auto(device, is_wanted):
    assert wants_gpu(device_named(device)) is is_wanted


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available() or not find_spec("bitsandbytes"), reason="no CUDA or bitsandbytes")
@pytest.mark.parametrize("device", ["cuda", "auto"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_works_on_gpu(dtype, device, tiny, folder_of):
    lm = load(str(folder_of("llama")), device=device, dtype=dtype)

    assert (answers(lm).cpu() - answers(tiny("llama"))).abs().mean() < 1.5
