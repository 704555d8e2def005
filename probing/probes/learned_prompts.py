"""Prompts that an earlier probe learned, asked again."""

from __future__ import annotations

from collections.abc import Sequence

from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.prompt_learning.methods import Learned, ProbeTask
from kgharvest.engine.prompt_learning.serialization import KeptPrompt, restored
from kgharvest.engine.prompts.prompt_set import PromptSetAnswerer
from probing.probes.facts import NotProbed
from probing.probes.models import Probe, ProbeRecord


def recall(lm: MaskedLM, method: str, tasks: Sequence[ProbeTask], earlier: Probe) -> list[Learned]:
    """Return what `method` has learned of each task in the probe `earlier`. Raises NotProbed."""
    if (earlier.language_model.name, earlier.revision or None) != (lm.name, lm.revision):
        raise NotProbed(f"Probe {earlier.pk} asked another LM, or another revision of it; name the one that it asked.")
    return [_recalled(lm, _record(earlier, method, task.relation)) for task in tasks]


def _record(earlier: Probe, method: str, relation: str) -> ProbeRecord:
    records = ProbeRecord.objects.filter(relation__probe=earlier, is_control=False).exclude(combine="")
    record = records.filter(method=method, relation__name=relation).first()
    if record is None:
        raise NotProbed(f"Probe {earlier.pk} keeps no prompts of {method} for {relation}; leave one of them out.")
    return record


def _recalled(lm: MaskedLM, record: ProbeRecord) -> Learned:
    kept = [
        KeptPrompt(tuple(map(tuple, one.segments)), tuple(one.slots), one.weight, bytes(one.vectors))
        for one in record.prompts.order_by("pk")
    ]
    prompts = restored(lm, kept, record.combine, record.temperature)
    return Learned(PromptSetAnswerer(lm, prompts), prompts.weights, record.n_parameters)
