"""JSON lines of a probe: one record per method and relation, and the learned prompts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from kgharvest.contrib.probing.models import LearnedPrompt, Probe
from kgharvest.contrib.probing.probes.document import MEASURES
from kgharvest.contrib.probing.probes.services import dtype_of, learned_prompts, records_of
from kgharvest.tables.formats import to_json

N_PROMPTS = 5  # maximum number of prompts or rewrites in a record; the file of prompts contains all


def record_lines(probe: Probe) -> Iterator[str]:
    """Yield records as JSON lines, in method order. docs/probing.md describes the keys."""
    records = records_of(probe)
    controls = {(record["relation"], record["method"]): record for record in records if record["is_control"]}
    prompts = _heaviest_prompts(probe)
    types = dict(probe.relations.values_list("name", "type"))
    shared = {
        "lm": str(probe.language_model),
        "revision": probe.revision,
        "dtype": dtype_of(probe),
        "dataset": probe.name,
        "vocab": probe.vocabulary,
        "seed": probe.payload["seed"],
        "code_version": probe.code_version,
    }
    for record in records:
        if not record.pop("is_control"):
            key = record["relation"], record["method"]
            control = controls.get(key)
            measures = {name: control[name] for name in MEASURES} if control else None
            record |= {"type": types[key[0]], **shared, "control": measures, "control_p1": measures and measures["p1"]}
            record["prompts"] = prompts[key]
            yield to_json(record) + "\n"


def _heaviest_prompts(probe: Probe) -> dict[tuple[str, str], list[dict[str, Any]]]:
    heaviest: dict[tuple[str, str], list[dict[str, Any]]] = {
        (name, method): [] for name in probe.relations.values_list("name", flat=True) for method in probe.methods
    }
    for prompt in learned_prompts(probe).defer("vectors", "nearest"):
        prompts = heaviest[prompt.record.relation.name, prompt.record.method]
        if len(prompts) < N_PROMPTS:
            prompts.append(_prompt_entry(prompt))
    return heaviest


def _prompt_entry(prompt: LearnedPrompt) -> dict[str, Any]:
    text = {"text": prompt.text, "weight": prompt.weight}
    if prompt.rewritten_from:
        return {"before": prompt.rewritten_from, **text}
    return {**text, "token_ids": prompt.segments, "slots": prompt.slots}


def prompt_lines(probe: Probe) -> Iterator[str]:
    """Yield every learned prompt as a JSON line. vectors: base64, as in `SerializedPrompt`."""
    for prompt in learned_prompts(probe).iterator(chunk_size=50):
        record = prompt.record
        entry = {
            "relation": record.relation.name,
            "method": record.method,
            "combine": record.combine,
            "temperature": record.temperature,
            **_prompt_entry(prompt),
            "nearest": prompt.nearest,
            "vectors": b64encode(prompt.vectors).decode(),
        }
        yield to_json(entry) + "\n"


JSON_LINES = {"records": record_lines, "prompts": prompt_lines}
