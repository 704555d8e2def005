"""Language models: their names, their files or servers, and the LMs in memory."""

from __future__ import annotations

import gc
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.language_models.names import REVISION, is_gguf, split_revision
from kgharvest.engine.language_models.networks.placement import (
    AUTO,
    DEFAULT_DEVICE,
    DEFAULT_DTYPE,
    FLOATS,
    QUANTIZED,
    check_placement,
)
from kgharvest.engine.language_models.served.names import ServedName, served_name
from kgharvest.engine.types import HUB_ID, EngineError, ModelNotFound
from kgharvest.errors import NotFound
from kgharvest.models import LanguageModel
from kgharvest.names import check_name
from kgharvest.packaged_lms import LOCAL_LMS, PACKAGED_LMS, is_on_hub, packaged_file

if TYPE_CHECKING:
    from kgharvest.engine.language_models.base import LanguageModel as LoadedLanguageModel


LM_NAMES_HELP = (  # help texts of commands, forms, and the API
    "embedded, smollm2, a model folder or GGUF file on this machine, a hub id with optional @REVISION, or "
    "http://host:8000/v1#MODEL@TOKENIZER for an LM behind a server"
)
PROBED_LM_NAMES_HELP = (
    "a model folder on this machine, or a hub id with optional @REVISION; LMs behind servers are not supported"
)
MAX_LOADED = 2  # maximum number of LMs to keep in memory; those used least recently are unloaded
LOADING = "loading the LM"  # progress stage of a job


def get_language_model(name: str, revision: str = "") -> LanguageModel:
    """Return the LM with this name: embedded LM, packaged LM, hub id, local folder or GGUF file, or LM behind a server.

    Used by commands, because users of commands may read any folder. A hub id is not checked until the LM is loaded.
    Raises NotFound or BadName.
    """
    if served := served_name(name):
        check_server(served)
        name = str(served._replace(tokenizer=_folder_or_hub_id(served.tokenizer)))
    elif name in PACKAGED_LMS:
        _check_installed(name)
    elif name not in EMBEDDED_LMS:
        hub_id, revision = split_revision(name, revision)
        if hub_id != name and Path(name).is_dir():
            raise _ambiguous(name)
        name = _folder_or_hub_id(hub_id)
    _check_revision(name, revision)
    return _loadable(name, revision)


def _check_revision(name: str, revision: str) -> None:
    """Raise NotFound if the revision is invalid or is a revision of an LM that is not on the hub."""
    if revision and not is_on_hub(name):
        raise NotFound(f"Only hub models have revisions, and {name} is not one. Remove the revision {revision!r:.80}.")
    if revision and not REVISION.fullmatch(revision):
        raise NotFound(f"Invalid revision {revision!r:.80}. Use a branch, tag, or commit of the hub model.")


def language_model_for_pages(name: str, revision: str = "") -> LanguageModel:
    """Return the LM with this name, for users who do not own the server. Raises NotFound or BadName.

    The name can be that of an LM that was named in a command, a hub id, a relative or absolute folder below
    settings.MODEL_ROOTS, or an LM behind settings.LM_SERVERS with a hub id as tokenizer. Errors disclose nothing about
    other folders. Naming a folder as a chat model, or as the LM of imported tuples, does not make it loadable.
    """
    if served := served_name(name):
        check_server(served)
        if not HUB_ID.fullmatch(served.tokenizer):
            raise NotFound(f"The tokenizer {served.tokenizer!r:.80} is not a hub id such as owner/model.")
        _check_revision(name, revision)
        return _loadable(name)
    if not revision:
        loadable = LanguageModel.objects.filter(revision="", is_loadable=True)
        existing = loadable.filter(name=name).first() if "\0" not in name else None  # PostgreSQL rejects NUL
        if name in PACKAGED_LMS:
            _check_installed(name)
        if existing or name in LOCAL_LMS:
            return existing or _loadable(name)
        if folder := _folder_below_roots(name):
            return _loadable(folder)
    name, revision = split_revision(name, revision)
    if not HUB_ID.fullmatch(name):
        raise NotFound(
            f"Model {name!r:.80} not found. Use one of {', '.join(LOCAL_LMS)}, a model in this installation's "
            "model folders, or a hub id."
        )
    _check_revision(name, revision)
    return _loadable(name, revision)


def _check_installed(name: str) -> None:
    try:
        packaged_file(name)
    except ModelNotFound as error:
        raise NotFound(str(error)) from None


def _folder_below_roots(name: str) -> str | None:
    for root in settings.MODEL_ROOTS:
        with suppress(OSError, RuntimeError, ValueError):
            folder = (root / name).resolve()
            is_model = (folder / "config.json").is_file() or is_gguf(folder)
            if is_model and folder.is_relative_to(root.resolve()):
                return str(folder)
    return None


def check_where(name: str, device: str, dtype: str) -> None:
    """Raise EngineError if the LM with this name cannot use `device` and `dtype`."""
    check_placement(device, dtype)
    if dtype in QUANTIZED and name in LOCAL_LMS:
        raise EngineError(f"{name} does not support {dtype}. Use one of {', '.join(FLOATS)}.")
    if served_name(name) and (device, dtype) != (DEFAULT_DEVICE, DEFAULT_DTYPE):
        raise EngineError(
            f"{name} runs behind a server, which defines its device and number format. Use the defaults, "
            f"{DEFAULT_DEVICE} and {DEFAULT_DTYPE}."
        )


def _loadable(name: str, revision: str = "") -> LanguageModel:
    """Return the LM, marked as loadable. Raises BadName."""
    language_model = name_language_model(name, revision)
    if not language_model.is_loadable:
        LanguageModel.objects.filter(pk=language_model.pk).update(is_loadable=True)
        language_model.is_loadable = True
    return language_model


def check_server(served: ServedName) -> None:
    """Raise NotFound unless the operator allows this server.

    Servers must be allowed because they receive prompts and an API key.
    """
    if served.base_url not in settings.LM_SERVERS:
        raise NotFound(
            f"{served.base_url} is not an allowed LM server. The operator can add it to KGHARVEST_LM_SERVERS."
        )


def name_language_model(name: str, revision: str = "") -> LanguageModel:
    """Return the database row of the LM with this name.

    A missing row is created without checking whether the LM exists.

    Raises BadName.
    """
    check_name(name, LanguageModel._meta.get_field("name").max_length, "LM")
    if revision:
        check_name(revision, LanguageModel._meta.get_field("revision").max_length, "LM's revision")
    is_demonstrator = {"is_demonstrator": name in EMBEDDED_LMS}
    return LanguageModel.objects.get_or_create(name=name, revision=revision, defaults=is_demonstrator)[0]


def _ambiguous(name: str) -> NotFound:
    return NotFound(
        f"{name} is both a hub id and a local folder. For the folder, use ./{name}. For the hub model, run the command "
        "in another directory."
    )


def _folder_or_hub_id(name: str) -> str:
    try:
        folder = Path(name).expanduser()
        has_config, is_folder = (folder / "config.json").is_file(), folder.is_dir()
        is_file = is_gguf(folder)
    except (OSError, RuntimeError):  # the name is too long, its user is unknown, or permission is missing
        raise NotFound(f"Cannot read the model {name!r:.80}. Use a readable folder.") from None
    if HUB_ID.fullmatch(name):
        if is_folder:
            raise _ambiguous(name)
        if "/" not in name and (meant := get_close_matches(name, LOCAL_LMS, n=1, cutoff=0.85)):
            raise NotFound(f"There is no LM {name}. Did you mean {meant[0]}? Write hub ids as OWNER/NAME.")
        return name
    if has_config or is_file:
        return str(folder.resolve())  # made absolute, because the worker may run in another directory
    if is_folder:
        raise NotFound(f"The folder {name} has no model (no config.json). Use a folder written by save_pretrained.")
    raise NotFound(
        f"Model folder {name} not found. Use one of {', '.join(LOCAL_LMS)}, a folder with a model, or a hub id."
    )


# LM and device by key (`in_words`). The most recently used LM is last.
_loaded: dict[str, tuple[LoadedLanguageModel, str]] = {}


def load(language_model: LanguageModel, device: str, dtype: str, random_seed: int | None = None) -> LoadedLanguageModel:
    """Load the LM, or return it from memory.

    Call it only in workers and commands, because torch must not be imported before a fork.

    random_seed: if set, replace the weights with random weights, as a control without knowledge.
    """

    from kgharvest.engine.language_models.threads import set_suitable_threads

    name = in_words(str(language_model), device, dtype)
    if random_seed is not None:
        name += f", random weights ({random_seed})"
    if name in _loaded:
        _loaded[name] = _loaded.pop(name)
    else:
        # An LM that may use all devices must be alone in memory.
        n_kept = 0 if AUTO in {device, *(loaded_on for _, loaded_on in _loaded.values())} else MAX_LOADED - 1
        if len(_loaded) > n_kept:
            for unloaded in list(_loaded)[: len(_loaded) - n_kept]:
                del _loaded[unloaded]
            gc.collect()  # needed because the LM's modules form reference cycles
        lm = _load(language_model.name, language_model.revision or None, device, dtype, random_seed)
        _loaded[name] = lm, device
    lm = _loaded[name][0]
    set_suitable_threads(lm)
    return lm


def in_words(name: str, device: str, dtype: str) -> str:
    """Return the key of an LM in memory, for example "bert-base-cased on cuda, float16".

    `name` includes the revision, if any.
    """
    return f"{name} on {device}, {dtype}"


def in_memory() -> tuple[str, ...]:
    """Return the keys (`in_words`) of the LMs in the memory of this process. The most recently used LM is last."""
    return tuple(_loaded)


def _load(name: str, revision: str | None, device: str, dtype: str, random_seed: int | None) -> LoadedLanguageModel:
    if served := served_name(name):
        from kgharvest.engine.language_models.served.served_lm import load_served

        check_server(served)
        if random_seed is not None:
            raise NotFound(f"{name} runs behind a server, which cannot use random weights. Remove the control.")
        return load_served(served, name, revision, settings.LM_SERVERS[served.base_url])
    from kgharvest.python_api import load_lm

    return load_lm(name, revision, device, dtype, random_seed)
