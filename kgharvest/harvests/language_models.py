"""Name LMs, find their files or servers, keep the loaded ones."""

from __future__ import annotations

import gc
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from django.conf import settings

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.language_models.networks.placement import (
    AUTO,
    DEFAULT_DEVICE,
    DEFAULT_DTYPE,
    FLOATS,
    QUANTIZED,
    check_placement,
)
from kgharvest.engine.language_models.served.names import ServedName, served_name
from kgharvest.engine.types import HUB_ID, EngineError
from kgharvest.errors import NotFound
from kgharvest.models import LanguageModel
from kgharvest.names import check_name

if TYPE_CHECKING:
    from kgharvest.engine.language_models.base import LanguageModel as LoadedLanguageModel


LM_NAMES_HELP = (  # for commands, forms and the API
    "a folder on this machine with an LM, a hub id, perhaps with @REVISION, or http://host:8000/v1#MODEL@TOKENIZER, an "
    "LM behind a server"
)
PROBED_LM_NAMES_HELP = "a folder on this machine with an LM, or a hub id, perhaps with @REVISION; no LM behind a server"
# A branch, tag or commit; the hub's cache has files that are named so.
REVISION = re.compile(r"(?!.*\.\.)\w[\w./-]*", re.ASCII)
WITH_REVISION = re.compile(rf"({HUB_ID.pattern})@(?P<revision>{REVISION.pattern})", re.ASCII)
KEPT = 2  # LMs in memory, the ones used last


LOADING = "loading the LM"  # the stage before the LM is asked anything


def get_language_model(name: str, revision: str = "") -> LanguageModel:
    """Return the LM that `name` means: an embedded one, a hub id, a local folder, or one behind a server.

    For commands, whose operator may read any folder, written as a path. Whether a hub id exists shows when it is
    loaded. Raises NotFound or BadName.
    """
    if served := served_name(name):
        check_server(served)
        name = str(served._replace(tokenizer=_folder_or_hub_id(served.tokenizer)))
    elif name not in EMBEDDED_LMS:
        hub_id, revision = split_revision(name, revision)
        if hub_id != name and Path(name).is_dir():
            raise _may_be_either(name)
        name = _folder_or_hub_id(hub_id)
    _check_revision(name, revision)
    return _loadable(name, revision)


def split_revision(name: str, revision: str = "") -> tuple[str, str]:
    """Return an LM's name and its revision, which may stand after a hub id, as in `bert-base-cased@main`.

    The inverse of a LanguageModel as text.
    """
    match = WITH_REVISION.fullmatch(name)
    return (name, revision) if revision or match is None else (match[1], match["revision"])


def _check_revision(name: str, revision: str) -> None:
    """Raise NotFound for a revision of what has none: embedded LMs, folders and LMs behind servers."""
    if revision and (name in EMBEDDED_LMS or not HUB_ID.fullmatch(name)):
        raise NotFound(f"{name} is no model of the hub and has no revisions; leave {revision!r:.80} out.")
    if revision and not REVISION.fullmatch(revision):
        raise NotFound(f"{revision!r:.80} is no revision of a model; name a branch, a tag or a commit of the hub.")


def language_model_for_pages(name: str, revision: str = "") -> LanguageModel:
    """Return the LM that `name` means for people who do not own the server. Raises NotFound or BadName.

    LMs that commands have named, hub ids, folders below settings.MODEL_ROOTS, relative to these or not, and LMs behind
    settings.LM_SERVERS with a hub id. Of other folders nothing is said: neither whether they are there nor what is in
    them, and who names one as a chat model or beside imported tuples may not have it loaded.
    """
    if served := served_name(name):
        check_server(served)
        if not HUB_ID.fullmatch(served.tokenizer):
            raise NotFound(f"The tokenizer {served.tokenizer!r:.80} is no hub id; name one, as in #model@hub/id.")
        _check_revision(name, revision)
        return _loadable(name)
    if not revision:
        loadable = LanguageModel.objects.filter(revision="", is_loadable=True)
        known = loadable.filter(name=name).first() if "\0" not in name else None  # PostgreSQL looks up no NUL
        if known or name in EMBEDDED_LMS:
            return known or _loadable(name)
        if folder := _folder_below_roots(name):
            return _loadable(folder)
    name, revision = split_revision(name, revision)
    if not HUB_ID.fullmatch(name):
        raise NotFound(
            f"There is no model {name!r:.80} here; name one of {', '.join(EMBEDDED_LMS)}, a model in the "
            "folders that this installation keeps models in, or a hub id."
        )
    _check_revision(name, revision)
    return _loadable(name, revision)


def _folder_below_roots(name: str) -> str | None:
    for root in settings.MODEL_ROOTS:
        with suppress(OSError, RuntimeError, ValueError):
            folder = (root / name).resolve()
            if folder.is_relative_to(root.resolve()) and (folder / "config.json").is_file():
                return str(folder)
    return None


def check_where(name: str, device: str, dtype: str) -> None:
    """Raise EngineError unless some machine has the LM of this name in `dtype` on `device`."""
    check_placement(device, dtype)
    if dtype in QUANTIZED and name in EMBEDDED_LMS:
        raise EngineError(f"{name} is small and never in {dtype}; use one of {', '.join(FLOATS)}.")
    if served_name(name) and (device, dtype) != (DEFAULT_DEVICE, DEFAULT_DTYPE):
        raise EngineError(
            f"{name} runs behind a server, which has a device and number format of its own; leave them "
            f"at {DEFAULT_DEVICE} and {DEFAULT_DTYPE}."
        )


def _loadable(name: str, revision: str = "") -> LanguageModel:
    """Return the LM, noted as one that may be loaded. Raises BadName."""
    language_model = _named(name, revision)
    if not language_model.is_loadable:
        LanguageModel.objects.filter(pk=language_model.pk).update(is_loadable=True)
        language_model.is_loadable = True
    return language_model


def check_server(served: ServedName) -> None:
    """Raise NotFound unless the operator has named the server's address: questions and its key go there."""
    if served.base_url not in settings.LM_SERVERS:
        raise NotFound(
            f"{served.base_url} is no server of LMs that this installation asks; its operator names them with "
            "KGHARVEST_LM_SERVERS."
        )


def _named(name: str, revision: str) -> LanguageModel:
    """Raises BadName."""
    check_name(name, LanguageModel._meta.get_field("name").max_length, "LM")
    if revision:
        check_name(revision, LanguageModel._meta.get_field("revision").max_length, "LM's revision")
    is_demonstrator = {"is_demonstrator": name in EMBEDDED_LMS}
    return LanguageModel.objects.get_or_create(name=name, revision=revision, defaults=is_demonstrator)[0]


def name_language_model(name: str) -> LanguageModel:
    """Return the LM called `name`, which need not be here: of imported tuples, or at an endpoint. Raises BadName."""
    return _named(name, "")


def _may_be_either(name: str) -> NotFound:
    return NotFound(
        f"{name} may be a model of the hub or the folder here; write ./{name} for the folder, or run the command in "
        "another one for the model of the hub."
    )


def _folder_or_hub_id(name: str) -> str:
    try:
        folder = Path(name).expanduser()
        holds_model, is_folder = (folder / "config.json").is_file(), folder.is_dir()
    except (OSError, RuntimeError):  # too long, no such user, not to be entered
        raise NotFound(f"The model {name!r:.80} cannot be looked up; name a folder that you can read.") from None
    if HUB_ID.fullmatch(name):
        if is_folder:
            raise _may_be_either(name)
        return name
    if holds_model:
        return str(folder.resolve())  # the worker may run in another directory
    if is_folder:
        raise NotFound(f"The folder {name} holds no model (no config.json); name a folder made by save_pretrained.")
    raise NotFound(
        f"There is no model folder {name}; name one of {', '.join(EMBEDDED_LMS)}, a folder with a model, or a hub id."
    )


class Kept(NamedTuple):
    lm: LoadedLanguageModel
    device: str


_kept: dict[str, Kept] = {}  # by `in_words`, the one used last at the end


def load(language_model: LanguageModel, device: str, dtype: str, random_seed: int | None = None) -> LoadedLanguageModel:
    """Return the LM in memory. Only for workers and commands: it imports torch, which must not happen before a fork.

    random_seed: of weights that take the place of its own, for a control that knows nothing.
    """
    import torch

    default = _default_number_of_threads()  # asked before it is changed for the first time
    # The embedded LMs are so small that more than one thread slows them down.
    torch.set_num_threads(1 if language_model.name in EMBEDDED_LMS else default)
    name = in_words(str(language_model), device, dtype)
    if random_seed is not None:
        name += f", random weights ({random_seed})"
    kept = _kept.pop(name, None)
    if kept is None:
        _make_room(device)
        lm = _load(language_model.name, language_model.revision or None, device, dtype, random_seed)
        kept = Kept(lm, device)
    _kept[name] = kept
    return kept.lm


def in_words(name: str, device: str, dtype: str) -> str:
    """Return what names an LM in memory: "bert-base-cased on cuda, float16". name: with its revision, if it has one."""
    return f"{name} on {device}, {dtype}"


def in_memory() -> tuple[str, ...]:
    """Return the LMs that this process holds, as `in_words` names them, the one used last at the end."""
    return tuple(_kept)


def _make_room(device: str) -> None:
    """Let go of LMs before another one is loaded for `device`. One that may take all devices is kept alone."""
    n_kept = 0 if AUTO in {device, *(kept.device for kept in _kept.values())} else KEPT - 1
    if len(_kept) > n_kept:
        for name in list(_kept)[: len(_kept) - n_kept]:
            del _kept[name]
        gc.collect()  # their modules refer to each other


@cache
def _default_number_of_threads() -> int:
    import torch

    return torch.get_num_threads()


def _load(name: str, revision: str | None, device: str, dtype: str, random_seed: int | None) -> LoadedLanguageModel:
    if name in EMBEDDED_LMS:
        from kgharvest.engine.language_models.compact import load_compact

        return load_compact(EMBEDDED_LMS[name], device, dtype, random_seed, name)
    if served := served_name(name):
        from kgharvest.engine.language_models.served.served_lm import load_served

        check_server(served)
        if random_seed is not None:
            raise NotFound(f"{name} is behind a server, which draws no random weights; leave the control out.")
        return load_served(served, name, revision, settings.LM_SERVERS[served.base_url])
    from kgharvest.engine.language_models import loading

    return loading.load(name, revision, device, dtype, random_seed)
