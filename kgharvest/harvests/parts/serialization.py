"""Lossless encoding of harvest parts and their results as compressed JSON."""

import base64
import io
import json
import zlib
from collections import Counter
from dataclasses import asdict, astuple
from typing import Any

import numpy as np
import torch

from kgharvest.engine.entities import entity_of
from kgharvest.engine.harvest import Prepared
from kgharvest.engine.language_models.base import EncodedPrompt
from kgharvest.engine.language_models.masked import SoftWords
from kgharvest.engine.parts import Part, RescorePart, SearchPart
from kgharvest.engine.prompts.comprehension import Comprehension
from kgharvest.engine.prompts.prompt_set import PromptSet
from kgharvest.engine.prompts.strategies import ChosenPrompts
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.search import Candidate, Found
from kgharvest.engine.types import HarvestParams, Notice, ScoredTuple, WeightedPrompt


def _packed(document: Any) -> bytes:
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), level=1)


def _unpacked(content: bytes) -> Any:
    """Return the document, with lists converted to tuples."""

    def with_tuples(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(map(with_tuples, value))
        if isinstance(value, dict):
            return {key: with_tuples(inner) for key, inner in value.items()}
        return value

    return with_tuples(json.loads(zlib.decompress(bytes(content))))


def write_prepared(prepared: Prepared, params: HarvestParams) -> bytes:
    chosen, prompt_set = prepared.prompts, prepared.prompts.prompt_set
    soft = prompt_set.soft_words
    return _packed(
        {
            "params": asdict(params) | {"disabled_filters": sorted(params.disabled_filters)},
            "prompts": prompt_set.prompts,
            "weights": prompt_set.weights,
            "combine": prompt_set.combine,
            "temperature": prompt_set.temperature,
            "soft_words": soft and [_tensor_text(tensor) for tensor in (soft.vectors, soft.deltas)],
            "weighted": [astuple(prompt) for prompt in chosen.weighted],
            "templates": [template.text for template in chosen.templates],
            "notices": chosen.notices,
            "examples": chosen.examples,
            "example_scores": chosen.example_scores,
            "comprehension": astuple(prepared.comprehension),
        }
    )


def read_prepared(content: bytes) -> tuple[Prepared, HarvestParams]:
    document = _unpacked(content)
    params = document["params"] | {"disabled_filters": frozenset(document["params"]["disabled_filters"])}
    prompt_set = PromptSet(
        prompts=tuple(EncodedPrompt(*prompt) for prompt in document["prompts"]),
        weights=document["weights"],
        combine=document["combine"],
        soft_words=document["soft_words"] and SoftWords(*map(_tensor, document["soft_words"])),
        temperature=document["temperature"],
    )
    chosen = ChosenPrompts(
        prompt_set,
        tuple(WeightedPrompt(*prompt) for prompt in document["weighted"]),
        tuple(map(PromptTemplate.parse, document["templates"])),
        tuple(Notice(*notice) for notice in document["notices"]),
        document["examples"],
        document["example_scores"],
    )
    return Prepared(chosen, Comprehension(*document["comprehension"])), HarvestParams(**params)


def _tensor_text(tensor: torch.Tensor | None) -> str | None:
    if tensor is None:
        return None
    buffer = io.BytesIO()
    np.save(buffer, tensor.detach().float().cpu().numpy(), allow_pickle=False)
    return base64.b64encode(buffer.getvalue()).decode()


def _tensor(text: str | None) -> torch.Tensor | None:
    if text is None:
        return None
    return torch.from_numpy(np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False))


def write_part(part: Part) -> bytes:
    if isinstance(part, SearchPart):
        return _packed({"patterns": part.patterns, "size": part.size, "heads": part.heads})
    return _packed({"candidates": list(map(_candidate, part.candidates)), "floor": part.floor})


def read_part(content: bytes) -> SearchPart | RescorePart:
    document = _unpacked(content)
    if "patterns" in document:
        return SearchPart(**document)
    candidates = tuple(_read_candidate(*candidate) for candidate in document["candidates"])
    return RescorePart(candidates, document["floor"])


def write_result(result: Found | list[ScoredTuple]) -> bytes:
    if isinstance(result, Found):
        return _packed(result._asdict() | {"candidates": list(map(_candidate, result.candidates))})
    return _packed([astuple(scored) for scored in result])


def read_result(content: bytes) -> Found | list[ScoredTuple]:
    document = _unpacked(content)
    if isinstance(document, dict):
        candidates = [_read_candidate(*candidate) for candidate in document["candidates"]]
        return Found(candidates, Counter(document["rejected"]), document["n_states"], document["notice"])
    return [ScoredTuple(*scored) for scored in document]


def _candidate(candidate: Candidate) -> list:
    """Return the fields of a candidate that merging and re-scoring use. Neither uses the tokens."""
    return [candidate.pattern, candidate.costs, candidate.surface, candidate.score]


def _read_candidate(pattern: tuple, costs: tuple, surface: tuple, score: float) -> Candidate:
    return Candidate(pattern, (), costs, tuple(map(entity_of, surface)), is_complete=True, score=score)
