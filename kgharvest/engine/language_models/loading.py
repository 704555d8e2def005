"""Loading of LMs and text-to-text models by hub id or local folder. The capabilities of an LM determine its family."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from importlib.util import find_spec
from io import StringIO
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
from kgharvest.engine.language_models.families import check_tokenizer, family_of
from kgharvest.engine.language_models.names import is_gguf
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


def load(
    name: str,
    revision: str | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    random_seed: int | None = None,
    file: str | None = None,
) -> LanguageModel:
    """Return the LM `name` (hub id, local folder, or GGUF file) at `revision`, ready for queries.

    device, dtype: names defined in kgharvest.engine.language_models.networks.placement.
    random_seed: if set, replace the weights with random weights, as a control without knowledge.
    file: GGUF file of an LM that `name` does not locate.

    Raises ModelNotFound, UnsupportedModel, BrokenModel if the LM does not fit on the device, or EngineError if the
    device or dtype is unavailable.
    """
    check_device(device)
    check_dtype(dtype, device)
    silence_libraries()
    with damage_said(name):
        source, files = gguf_files(file or name) if is_gguf(file or name) else (name, files_of(name, revision))
        config = load_config(source, files)
        tokenizer = AutoTokenizer.from_pretrained(source, **files)
        if len(tokenizer) <= len(tokenizer.all_special_ids):  # no tokenizer files; transformers creates an empty one
            raise not_found(name)
        auto_class, family = family_of(config, tokenizer, name)
        check_tokenizer(tokenizer, text_config(config).vocab_size, name)
        model = load_model(auto_class, source, device, dtype, config=config, **files)
        if random_seed is not None:
            randomize_weights(model, random_seed)
        try:
            lm = family(
                model, tokenizer, name, files["revision"] or weights_fingerprint(Path(file or name).expanduser())
            )
            # Some invalid sizes in configs, and tokenizers without an unknown token, fail only in a query.
            prompt = lm.encode_prompt(PromptTemplate.parse("the <ENT0> is a <ENT1>"))
            lm.logits(lm.vectors([lm.query(prompt, (1, 1), ())], 1, lambda: None))
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise too_large(name, device, dtype) from error
            if (dtype, device) == ("float32", "cpu"):
                raise
            # Examples: Mamba requires float32 on a CPU, DeBERTa-v2 requires a single device.
            raise UnsupportedModel(
                f"Model {name!r} does not support {dtype} on {device}. Use float32 and one device."
            ) from error
    return lm


def silence_libraries() -> None:
    """Disable progress bars and warnings of transformers and the hub client."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    hub_logging.set_verbosity_error()  # type: ignore[no-untyped-call]


def load_model(auto_class: Any, name: str, device: str, dtype: str, **which: Any) -> Any:
    """Return the model with all its weights. Raises UnsupportedModel if the checkpoint lacks any of them.

    The LM head of Microsoft's DeBERTa-v2 and -v3 checkpoints is not the one that transformers infers from the config.
    """
    # Reading a GGUF file shows a progress bar on stderr that no setting turns off.
    with redirect_stderr(StringIO()) if "gguf_file" in which else nullcontext():
        model, report = from_pretrained(auto_class, name, device, dtype, **which)
    if any(key.startswith("lm_predictions.") for key in report["unexpected_keys"]):
        which["config"].legacy = False
        model, report = from_pretrained(auto_class, name, device, dtype, **which)
    if missing := sorted(report["missing_keys"]):
        raise UnsupportedModel(
            f"Model {name!r} lacks {len(missing)} weights (first: {missing[0]}), probably its LM head. "
            "Use the checkpoint that was pretrained to fill in blanks."
        )
    return model


def load_seq2seq(name: str, revision: str | None = None, device: str = "cpu") -> encoder_decoder.Seq2SeqModel:
    """Return the text-to-text model `name` (hub id or local folder).

    Raises ModelNotFound, UnsupportedModel, EngineError if the device is unavailable, or BrokenModel if the model does
    not fit into memory.
    """
    check_device(device)
    silence_libraries()
    with damage_said(name):
        files = files_of(name, revision)
        config = load_config(name, files)
        if not config.is_encoder_decoder:
            raise UnsupportedModel(
                f"Model {name!r} has type {config.model_type}, which is not an encoder-decoder. "
                "Use an encoder-decoder (T5, BART, PEGASUS)."
            )
        tokenizer = AutoTokenizer.from_pretrained(name, **files)
        model, _ = from_pretrained(AutoModelForSeq2SeqLM, name, device, "float32", **files)
    return encoder_decoder.Seq2SeqModel(model, tokenizer, name)


def gguf_files(file: str) -> tuple[str, dict[str, Any]]:
    """Return the folder of a GGUF file and loader options. Raises EngineError if a required package is missing."""
    if not (find_spec("gguf") and find_spec("accelerate")):
        raise EngineError("GGUF files require gguf and accelerate. Run: pip install gguf accelerate psutil")
    path = Path(file).expanduser()
    return str(path.parent), {"revision": None, "local_files_only": True, "gguf_file": path.name}


def files_of(name: str, revision: str | None) -> dict[str, Any]:
    """Return loader options: the hub commit that `revision` resolves to, and whether to use only local files.

    A fixed commit makes all files consistent and can be recorded with the harvest. A local folder has no commit, so
    `revision` is returned unchanged. If the hub is unreachable, the cache is used.
    """
    is_local = Path(name).is_dir() or not hub_answers()
    config_file = cached_file(name, CONFIG_NAME, revision=revision, local_files_only=is_local)
    return {"revision": extract_commit_hash(config_file, None) or revision, "local_files_only": is_local}


def hub_answers() -> bool:
    """Return whether the hub accepts connections. The hub client would retry for half a minute before failing."""
    hub = urlsplit(constants.ENDPOINT)
    if constants.HF_HUB_OFFLINE:
        return False
    if getproxies():
        return True  # reachable only through the proxy, which this check does not use
    try:
        socket.create_connection((hub.hostname, hub.port or PORTS[hub.scheme]), HUB_PATIENCE_S).close()
    except OSError:
        return False
    return True


def load_config(name: str, files: dict[str, Any]) -> Any:
    """Return the transformers config. Raises ModelNotFound, or UnsupportedModel for a type unknown to transformers."""
    if "gguf_file" in files:
        return AutoConfig.from_pretrained(name, **files)  # reading the file twice takes seconds
    fields, _ = PreTrainedConfig.get_config_dict(name, **files)
    if not fields:
        raise not_found(name)
    if fields.get("model_type") not in CONFIG_MAPPING:
        raise UnsupportedModel(
            f"The config.json of {name!r} has no model_type supported by transformers. Use another model."
        )
    return AutoConfig.from_pretrained(name, **files)


@contextmanager
def damage_said(name: str) -> Iterator[None]:
    """Convert errors caused by missing or damaged files to ModelNotFound, and MemoryError to BrokenModel.

    The tokenizers library raises plain `Exception`. Invalid values in a config or an index can cause any exception.
    """
    check_not_hidden(name)
    try:
        yield
    except EngineError:
        raise
    except MemoryError as error:
        raise BrokenModel(
            f"Model {name!r} does not fit into memory. Use a smaller model, bfloat16, or the device "
            f"{AUTO}, which stores excess weights on disk."
        ) from error
    except Exception as error:
        raise not_found(name) from error


def check_not_hidden(name: str) -> None:
    """Raise ModelNotFound if a local folder has the same name as the hub id `name`."""
    if HUB_ID.fullmatch(str(name)) and Path(name).is_dir():
        raise ModelNotFound(
            f"{name!r} is a hub id and a folder in {Path.cwd()}. Use ./{name} for the folder, or start kgharvest in "
            "another folder to use the hub model."
        )


def not_found(name: str) -> ModelNotFound:
    if is_gguf(name):
        return ModelNotFound(
            f"File {name} is damaged, or transformers cannot read its type of model. Use another file."
        )
    if name and Path(name).is_dir():
        return ModelNotFound(
            f"Folder {name} does not contain a complete model. "
            "Use a folder written by save_pretrained, with config.json, tokenizer files, and undamaged weights."
        )
    return ModelNotFound(
        f"Model {name!r} is neither a local folder nor available from the hub. "
        "Check the name, the revision, and the network, or download the model and use its folder."
    )
