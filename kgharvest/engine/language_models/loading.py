"""Load an LM by hub id or local folder, as the family that its capabilities say; load models that rewrite texts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from huggingface_hub import constants
from huggingface_hub.utils import logging as hub_logging
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedConfig
from transformers.utils import CONFIG_NAME
from transformers.utils import logging as transformers_logging
from transformers.utils.hub import cached_file, extract_commit_hash

from kgharvest.engine.language_models import encoder_decoder
from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.language_models.batching import is_out_of_memory
from kgharvest.engine.language_models.capabilities import check_tokenizer, family_of
from kgharvest.engine.language_models.networks.devices import (
    check_device,
    check_dtype,
    from_pretrained,
    randomize_weights,
    too_large,
    weights_fingerprint,
)
from kgharvest.engine.language_models.networks.heads import text_config
from kgharvest.engine.language_models.networks.placement import AUTO
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import HUB_ID, BrokenModel, EngineError, ModelNotFound, UnsupportedModel

PORTS = {"http": 80, "https": 443}
HUB_PATIENCE_S = 5.0

Files = dict[str, Any]  # options of all that reads files of a model: `files_of`


def load(
    name: str,
    revision: str | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    random_seed: int | None = None,
) -> LanguageModel:
    """Return the LM `name` (a hub id or a local folder) at `revision`, ready to be asked.

    device, dtype: as kgharvest.engine.language_models.networks.placement names them.
    random_seed: of weights that take the place of its own, for a control that knows nothing.

    Raises ModelNotFound, UnsupportedModel, BrokenModel if it does not fit on the device, or EngineError for a device or
    dtype that is not there.
    """
    check_device(device)
    check_dtype(dtype, device)
    silence_libraries()
    with damage_said(name):
        files = files_of(name, revision)
        config = load_config(name, files)
        tokenizer = AutoTokenizer.from_pretrained(name, **files)
        if len(tokenizer) <= len(tokenizer.all_special_ids):  # its files lack, and transformers made one of these alone
            raise not_found(name)
        auto_class, family = family_of(config, tokenizer, name)
        check_tokenizer(tokenizer, text_config(config).vocab_size, name)
        model = load_model(auto_class, name, device, dtype, config=config, **files)
        if random_seed is not None:
            randomize_weights(model, random_seed)
        with refusals_said(name, device, dtype):
            lm = family(model, tokenizer, name, files["revision"] or weights_fingerprint(Path(name)))
            check_answers(lm)
    return lm


def silence_libraries() -> None:
    """Keep the bars and warnings of what loads models off the terminal, where progress is shown."""
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    hub_logging.set_verbosity_error()  # type: ignore[no-untyped-call]


def load_model(auto_class: Any, name: str, device: str, dtype: str, **which: Any) -> Any:
    """Return the model with all its weights. Raises UnsupportedModel if some are not in the checkpoint.

    Microsoft's DeBERTa-v2 and -v3 checkpoints have another LM head than their config.json lets transformers expect.
    """
    model, report = from_pretrained(auto_class, name, device, dtype, **which)
    if any(key.startswith("lm_predictions.") for key in report["unexpected_keys"]):
        which["config"].legacy = False
        model, report = from_pretrained(auto_class, name, device, dtype, **which)
    check_complete(name, report)
    return model


def load_seq2seq(name: str, revision: str | None = None, device: str = "cpu") -> encoder_decoder.Seq2SeqModel:
    """Return the text-to-text model `name` (a hub id or a local folder).

    Raises ModelNotFound, UnsupportedModel, BrokenModel if it does not fit on the device, or EngineError for a device
    that is not there.
    """
    check_device(device)
    silence_libraries()
    with damage_said(name):
        return _load_seq2seq(name, files_of(name, revision), device)


def _load_seq2seq(name: str, files: Files, device: str) -> encoder_decoder.Seq2SeqModel:
    config = load_config(name, files)
    if not config.is_encoder_decoder:
        raise UnsupportedModel(
            f"The model {name!r} is of type {config.model_type}, which does not rewrite texts; "
            "name an encoder-decoder model trained to paraphrase (T5, BART, PEGASUS)."
        )
    tokenizer = AutoTokenizer.from_pretrained(name, **files)
    model, _ = from_pretrained(AutoModelForSeq2SeqLM, name, device, "float32", **files)
    return encoder_decoder.Seq2SeqModel(model, tokenizer, name)


def files_of(name: str, revision: str | None) -> Files:
    """Return what tells transformers which files: of the hub's commit that `revision` is now, and whether to ask there.

    So all files are of one state, and a harvest can name it. A local folder has no commit; what the caller says of it
    stands. Where the hub cannot be reached the cache answers.
    """
    is_local = Path(name).is_dir() or not hub_answers()
    config_file = cached_file(name, CONFIG_NAME, revision=revision, local_files_only=is_local)
    return {"revision": extract_commit_hash(config_file, None) or revision, "local_files_only": is_local}


def hub_answers() -> bool:
    """Return whether the hub takes a connection: its client would try for half a minute where none is to be had."""
    hub = urlsplit(constants.ENDPOINT)
    if constants.HF_HUB_OFFLINE:
        return False
    if getproxies():
        return True  # which only a proxy can tell
    try:
        socket.create_connection((hub.hostname, hub.port or PORTS[hub.scheme]), HUB_PATIENCE_S).close()
    except OSError:
        return False
    return True


def load_config(name: str, files: Files) -> Any:
    """Return the transformers config. Raises ModelNotFound, or UnsupportedModel for a type unknown to transformers."""
    fields, _ = PreTrainedConfig.get_config_dict(name, **files)
    if not fields:
        raise not_found(name)
    if fields.get("model_type") not in CONFIG_MAPPING:
        raise UnsupportedModel(
            f"The config.json of {name!r} has no model_type that transformers knows; use a model of a known type."
        )
    return AutoConfig.from_pretrained(name, **files)


def check_answers(lm: LanguageModel) -> None:
    """Ask once: some odd sizes in a config, and tokenizers without an unknown token, fail only then."""
    prompt = lm.encode_prompt(PromptTemplate.parse("the <ENT0> is a <ENT1>"))
    lm.logits(lm.vectors([lm.query(prompt, (1, 1), ())], 1, lambda: None))


@contextmanager
def refusals_said(name: str, device: str, dtype: str) -> Iterator[None]:
    """Raise UnsupportedModel for an LM that is asked in vain as it was loaded, and BrokenModel for one too large.

    Mamba computes in float32 on a CPU, and DeBERTa-v2 on one device.
    """
    try:
        yield
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise too_large(name, device, dtype) from error
        if (dtype, device) == ("float32", "cpu"):
            raise
        raise UnsupportedModel(
            f"The model {name!r} does not compute in {dtype} on {device}; use float32 and one device."
        ) from error


@contextmanager
def damage_said(name: str) -> Iterator[None]:
    """Raise ModelNotFound for whatever files that lack or are damaged make transformers, tokenizers or torch raise.

    Tokenizers raises Exception itself, and odd values in a config or an index any of Python's.
    """
    check_not_hidden(name)
    try:
        yield
    except EngineError:
        raise
    except MemoryError as error:
        raise BrokenModel(
            f"The model {name!r} does not fit into memory; use a smaller one, bfloat16, or the device "
            f"{AUTO}, which leaves on the disk what does not fit."
        ) from error
    except Exception as error:
        raise not_found(name) from error


def check_not_hidden(name: str) -> None:
    """Raise if transformers would take a folder here for the model of the hub that `name` is."""
    if HUB_ID.fullmatch(str(name)) and Path(name).is_dir():
        raise ModelNotFound(
            f"{name!r} is a model of the hub and a folder in {Path.cwd()}; write ./{name} for the folder, or start in "
            "another one for the model of the hub."
        )


def not_found(name: str) -> ModelNotFound:
    if name and Path(name).is_dir():
        return ModelNotFound(
            f"The folder {name} holds no whole model; "
            "name one made by save_pretrained, with config.json, tokenizer files and undamaged weights."
        )
    return ModelNotFound(
        f"The model {name!r} is neither a local folder nor a model that the hub gives out here; "
        "check the name, the revision and the network, or download it and name its folder."
    )


def check_complete(name: str, report: dict[str, Any]) -> None:
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise UnsupportedModel(
            f"The model {name!r} lacks {len(missing)} of its weights (first: {missing[0]}), probably its LM head; "
            "use the checkpoint that was pretrained to fill in blanks."
        )
