"""Probes as jobs: created with all they need frozen in them, queued, and their results read record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import transaction

from kgharvest.accounts.projects import project_for
from kgharvest.contrib.probing.models import LearnedPrompt, Probe, ProbedRelation, ProbeRecord
from kgharvest.contrib.probing.probes.document import probe_document
from kgharvest.contrib.probing.probes.facts import NotProbed, ProbeRelation
from kgharvest.engine.language_models.networks.placement import DEFAULT_DEVICE, DEFAULT_DTYPE, FLOATS, QUANTIZED
from kgharvest.engine.prompt_learning.registry import BUDGET_FIELDS, METHODS, LearningBudget
from kgharvest.errors import NotFound
from kgharvest.harvests import language_models
from kgharvest.jobs import ledger
from kgharvest.models import LanguageModel, Project


@dataclass(frozen=True)
class ProbeParams(LearningBudget):
    """How a probe is done.

    with_control: run every method on the LM with random weights, too. common_with, words: ranks are counted among the
    words that these LMs, too, write as one token, and among `words`; without both among the whole vocabulary.
    prompts_of: an earlier probe whose prompts are asked; nothing is learned.
    """

    with_control: bool = True
    device: str = DEFAULT_DEVICE
    dtype: str = DEFAULT_DTYPE
    common_with: Sequence[str] = ()
    words: Sequence[str] = ()
    prompts_of: int | None = None


@dataclass(frozen=True)
class ProbeRequest:
    """name: of the relations together; facts: what their facts are called."""

    language_model: LanguageModel
    relations: Sequence[ProbeRelation]
    methods: Sequence[str]
    name: str
    facts: str
    params: ProbeParams = ProbeParams()


@transaction.atomic
def create_probe(request: ProbeRequest, by=None, project: Project | None = None) -> Probe:
    """Create a queued job with all it needs frozen in it. Raises NotProbed, EngineError, NotAllowed, ProjectNotNamed.

    `ledger.run_job` does it in this process; `queue_probe` leaves it to a worker.
    """
    if unknown := set(request.methods) - set(METHODS):
        raise NotProbed(f"There is no method {min(unknown)!r}; choose from {', '.join(METHODS)}.")
    for method in map(METHODS.get, request.methods):
        options = request.params.of(method)
        for parameter, other in method.needs.items():
            if options[parameter] < options[other]:
                raise NotProbed(f"{method.label} needs {options[other]} {parameter} or more; allow more.")
    check_lm(request.language_model, request.params.device, request.params.dtype, request.params.with_control)
    probe = Probe.objects.create(
        kind=Probe.KIND,
        project=project_for(by, project),
        language_model=request.language_model,
        name=request.name[:200],
        methods=list(dict.fromkeys(request.methods)),
        facts=request.facts[:200],
        payload=asdict(request.params),
        lm=language_models.in_words(str(request.language_model), request.params.device, request.params.dtype),
        created_by=by,
    )
    ProbedRelation.objects.bulk_create(
        ProbedRelation(
            probe=probe, name=relation.name, type=relation.type, prompts=relation.prompts, facts=dict(relation.facts)
        )
        for relation in request.relations
    )
    return probe


@transaction.atomic
def queue_probe(request: ProbeRequest, by=None, project: Project | None = None) -> Probe:
    """Create a job and tell the workers."""
    probe = create_probe(request, by, project)
    ledger.enqueue(probe)
    return probe


def check_lm(language_model: LanguageModel, device: str, dtype: str, with_control: bool) -> None:
    """Raise EngineError or NotProbed unless the LM, and the control beside it, can be loaded like this somewhere."""
    language_models.check_where(language_model.name, device, dtype)
    if with_control and dtype in QUANTIZED:
        raise NotProbed(
            f"Random weights, the control, are not drawn in {dtype}; leave the control out, or choose one of "
            f"{', '.join(FLOATS)}."
        )


def find_probe(number: int, user=None) -> Probe:
    """Return the probe of this number if `user` sees it. Raises NotFound."""
    probe = Probe.objects.visible_to(user).select_related("language_model").filter(pk=number).first()
    if probe is None:
        raise NotFound(f"There is no probe {number}; look at the list of probes for its number.")
    return probe


def methods_with_prompts(probe: Probe) -> list[str]:
    """Return the methods whose prompts a probe has kept. Raises NotProbed if there are none."""
    records = ProbeRecord.objects.filter(relation__probe=probe, is_control=False).exclude(combine="")
    with_prompts = set(records.values_list("method", flat=True))
    if not with_prompts:
        raise NotProbed(f"Probe {probe.pk} has kept no prompts; name another one.")
    return [method for method in probe.methods if method in with_prompts]


# -- results -----------------------------------------------------------------------------------------------------------


def document_of(probe: Probe) -> dict[str, Any]:
    """Return the JSON of docs/probing.md, of what is measured so far."""
    relations = list(probe.relations.defer("facts", "prompts"))
    return {
        "name": probe.name,
        "model": str(probe.language_model),
        "revision": probe.revision,
        "facts": probe.facts,
        "methods": probe.methods,
        **{name: probe.payload.get(name) for name in (*BUDGET_FIELDS, "preset", "with_control", "device")},
        "dtype": dtype_of(probe),
        "code_version": probe.code_version,
        "vocabulary": probe.vocabulary,
        **probe_document(records_of(probe), {relation.name: relation.type for relation in relations}),
        "faults": {relation.name: relation.fault for relation in relations if relation.fault},
    }


def dtype_of(probe: Probe) -> str:
    """Return the number format of the LM's weights, which probes of older versions do not name."""
    dtype: str = probe.payload.get("dtype", DEFAULT_DTYPE)
    return dtype


def records_of(probe: Probe) -> list[dict[str, Any]]:
    """Return the records in the order of the methods, then of the relations."""
    columns = [field.name for field in ProbeRecord._meta.concrete_fields if field.name not in ("id", "relation")]
    rows = ProbeRecord.objects.filter(relation__probe=probe).order_by("relation_id", "is_control")
    records = [{"relation": row.pop("relation__name"), **row} for row in rows.values("relation__name", *columns)]
    return sorted(records, key=lambda record: probe.methods.index(record["method"]))


def learned_prompts(probe: Probe):
    """Return the prompts that the LM's methods learned, the heaviest of each first."""
    prompts = LearnedPrompt.objects.filter(record__relation__probe=probe).select_related("record__relation")
    return prompts.order_by("record_id", "-weight", "pk")
