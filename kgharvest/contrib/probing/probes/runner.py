"""Runner of probe jobs: load the LM, measure every method on every relation, and store each record.

Imports torch, so only workers and commands that run a probe import this module.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kgharvest import code_version
from kgharvest.contrib.probing.models import LearnedPrompt, Probe, ProbedRelation, ProbeRecord
from kgharvest.contrib.probing.probes import rewrites
from kgharvest.contrib.probing.probes.facts import NotProbed, ProbeRelation
from kgharvest.contrib.probing.probes.learned_words import learned_words
from kgharvest.contrib.probing.probes.measurement import Measurement, MethodRunner, cells_of, measure, probe_task
from kgharvest.contrib.probing.probes.services import ProbeParams, document_of, find_probe
from kgharvest.contrib.probing.prompt_learning.learners import Learned, ProbeTask, learn
from kgharvest.contrib.probing.prompt_learning.registry import METHODS
from kgharvest.engine.language_models.masked import MaskedLM, MaskFillingLM
from kgharvest.engine.language_models.pretrained import PretrainedLM
from kgharvest.engine.probing import common_words, token_of
from kgharvest.engine.prompts.prompt_set import (
    PromptSetAnswerer,
    SerializedPrompt,
    deserialize,
    nearest_words,
    prompt_text,
    serialize,
)
from kgharvest.engine.types import Cancelled, EngineError, Progress
from kgharvest.harvests import language_models
from kgharvest.jobs import ledger
from kgharvest.models import Job, LanguageModel

N_NEAREST = 5  # nearest words stored per soft token
STAGE_LENGTH = 60  # characters


def run_probe(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Run a probe job. Keeps records of an earlier attempt with the same LM revision, code version, and vocabulary."""
    probe = Probe.objects.select_related("language_model").get(pk=job.pk)
    params = ProbeParams(**job.payload)
    heartbeat(Progress(language_models.LOADING, 0))
    with heartbeat.kept_alive():
        lm, control = load_with_control(probe.language_model, params.device, params.dtype, params.with_control)
        check_methods(lm, probe.methods)
        vocabulary, description = common_vocabulary(lm, params)
    heartbeat.store(partial(_delete_outdated, probe, lm.revision or "", description))
    run_method: MethodRunner = partial(learn, budget=params)
    if params.prompts_of is not None:
        run_method = partial(load_learned, earlier=find_probe(params.prompts_of))
    _measure_all(probe, (lm, control), vocabulary, run_method, heartbeat)
    document = document_of(probe)
    return lambda: Probe.objects.filter(pk=probe.pk).update(document=document)


def load_with_control(
    language_model: LanguageModel, device: str, dtype: str, with_control: bool
) -> tuple[PretrainedLM, PretrainedLM | None]:
    """Return the LM and, if requested, its control with random weights."""
    lm = language_models.load(language_model, device, dtype)
    if not with_control:
        return lm, None
    return lm, language_models.load(language_model, device, dtype, random_seed=0)


def check_methods(lm: PretrainedLM, methods: Sequence[str]) -> None:
    """Raise EngineError for methods that `lm` does not support."""
    has_mask, is_encoder = isinstance(lm, MaskFillingLM), isinstance(lm, MaskedLM)
    supported = [
        name for name, method in METHODS.items() if has_mask >= method.needs_mask and is_encoder >= method.needs_encoder
    ]
    if unsupported := [name for name in methods if name not in supported]:
        needs_encoder = METHODS[unsupported[0]].needs_encoder
        required, lack = ("a masked LM", "is not one") if needs_encoder else ("an LM with a mask token", "has none")
        raise EngineError(
            f"The method {unsupported[0]} requires {required}, and {lm.name} {lack}. Use another LM or one of the "
            f"methods {', '.join(supported)}."
        )


def common_vocabulary(lm: PretrainedLM, params: ProbeParams) -> tuple[list[int] | None, str]:
    """Return the tokens among which ranks are counted (None for all), and a description of them.

    Raises NotProbed if no word is a single token in all LMs.
    """
    if not params.common_with and not params.words:
        return None, "full"
    other_lms = [
        language_models.load(language_models.get_language_model(name), params.device, params.dtype)
        for name in params.common_with
    ]
    words = common_words([lm, *other_lms], params.words or None)
    if not words:
        raise NotProbed("No word is a single token in all these LMs. Use other LMs or another vocabulary file.")
    tokens = sorted({token for word in words if (token := token_of(lm, word)) is not None})
    shared = f" common with {', '.join(params.common_with)}" if params.common_with else ""
    return tokens, f"{len(tokens):,} words{' of a file' if params.words else ''}{shared}"


def _delete_outdated(probe: Probe, revision: str, vocabulary: str) -> None:
    """Delete records of a different LM revision, code version, or vocabulary."""
    current = {"revision": revision, "code_version": code_version(), "vocabulary": vocabulary}
    if any(getattr(probe, name) != value for name, value in current.items()):
        ProbeRecord.objects.filter(relation__probe=probe).delete()
        Probe.objects.filter(pk=probe.pk).update(**current)
        probe.refresh_from_db(fields=list(current))


def _measure_all(
    probe: Probe,
    lms: tuple[PretrainedLM, PretrainedLM | None],
    vocabulary: Sequence[int] | None,
    run_method: MethodRunner,
    heartbeat: ledger.Heartbeat,
) -> None:
    """Measure the cells that have no record yet. Raises NotProbed if no cell can be measured.

    Sets `fault` of each relation that cannot be probed or lacks results.
    """
    lm, control = lms
    relations = {relation.name: relation for relation in probe.relations.all()}
    tasks = []
    for name, relation in relations.items():
        relation.fault = ""
        try:
            inputs = ProbeRelation(name, relation.prompts, relation.facts, origins=relation.origins)
            tasks.append(probe_task(lm, inputs, vocabulary))
        except (NotProbed, EngineError) as fault:
            relation.fault = str(fault)
    heartbeat.store(partial(ProbedRelation.objects.bulk_update, list(relations.values()), ["fault"]))
    if not tasks:
        raise NotProbed(_faults_text(relations))
    cells = list(cells_of(probe.methods, tasks, control is not None))
    records = ProbeRecord.objects.filter(relation__probe=probe)
    existing = set(records.values_list("relation__name", "method", "is_control"))
    for done, cell in enumerate(cells):
        if {(task.relation, cell.method, cell.is_control) for task in cell.tasks} <= existing:
            continue
        tick = partial(heartbeat, Progress(cell.name[:STAGE_LENGTH], done, len(cells)))
        try:
            probed_lm = control if control and cell.is_control else lm
            measurements = measure(probed_lm, cell, run_method, vocabulary, tick)
        except Cancelled:
            raise
        except EngineError as fault:
            heartbeat.store(partial(_add_fault, [relations[task.relation] for task in cell.tasks], str(fault)))
            continue
        rows = [_rows(lm, measurement, relations[measurement.task.relation]) for measurement in measurements]
        heartbeat.store(partial(_store, rows))
    if not records.exists():
        raise NotProbed(_faults_text(relations))


def _rows(
    lm: PretrainedLM, measurement: Measurement, relation: ProbedRelation
) -> tuple[ProbeRecord, list[LearnedPrompt]]:
    """Return the unsaved record of a measurement and, unless it is of the control, its learned prompts."""
    record = ProbeRecord(**measurement.record() | {"relation": relation})
    if record.is_control:
        return record, []
    compared = rewrites.compared_rewrites(measurement)
    record.parts_of_speech = rewrites.replaced_parts_of_speech(compared)
    prompts = [*_prompt_columns(lm, measurement), *rewrites.examples(compared)]
    return record, [LearnedPrompt(record=record, **columns) for columns in prompts]


def _add_fault(relations: Sequence[ProbedRelation], fault: str) -> None:
    """Append the reason for a missing record, but only once if a method and its control fail for the same reason."""
    for relation in relations:
        if fault not in relation.fault:
            relation.fault = f"{relation.fault} {fault}".lstrip()
    ProbedRelation.objects.bulk_update(relations, ["fault"])


def _faults_text(relations: Mapping[str, ProbedRelation]) -> str:
    return " ".join(dict.fromkeys(relation.fault for relation in relations.values() if relation.fault))


def _prompt_columns(lm: PretrainedLM, measurement: Measurement) -> Iterator[dict[str, Any]]:
    """Yield the columns of a LearnedPrompt for each learned prompt."""
    prompt_set = measurement.prompt_set
    if prompt_set is None:
        return
    nearest = nearest_words(lm, prompt_set.soft_words.vectors, N_NEAREST) if prompt_set.soft_words else []
    words = [candidates[0][0] for candidates in nearest]
    originals = measurement.learned.originals
    learned = learned_words(lm, prompt_set, originals) if originals else [[] for _ in prompt_set.prompts]
    for prompt, serialized, parts in zip(prompt_set.prompts, serialize(lm, prompt_set), learned, strict=True):
        soft = dict.fromkeys(token for segment in prompt.segments for token in segment if token >= lm.vocab_size)
        yield {
            "text": prompt_text(lm, prompt, words),
            "nearest": [nearest[token - lm.vocab_size] for token in soft],
            "learned": parts,
            **serialized._asdict(),
        }


def _store(rows: Sequence[tuple[ProbeRecord, list[LearnedPrompt]]]) -> None:
    for record, prompts in rows:
        record.save()
        LearnedPrompt.objects.bulk_create(prompts)


def load_learned(lm: PretrainedLM, method: str, tasks: Sequence[ProbeTask], earlier: Probe) -> list[Learned]:
    """Return the prompts that `method` learned for each task in the probe `earlier`. Raises NotProbed."""
    if (earlier.language_model.name, earlier.revision or None) != (lm.name, lm.revision):
        raise NotProbed(f"Probe {earlier.pk} used a different LM or revision. Select the LM of that probe.")
    learned = []
    for task in tasks:
        records = ProbeRecord.objects.filter(relation__probe=earlier, is_control=False).exclude(combine="")
        record = records.filter(method=method, relation__name=task.relation).first()
        if record is None:
            raise NotProbed(
                f"Probe {earlier.pk} has no prompts of {method} for {task.relation}. Remove the method or relation."
            )
        serialized = [
            SerializedPrompt(
                tuple(map(tuple, prompt.segments)), tuple(prompt.slots), prompt.weight, bytes(prompt.vectors)
            )
            for prompt in record.prompts.order_by("pk")
        ]
        prompt_set = deserialize(lm, serialized, record.combine, record.temperature)
        learned.append(Learned(PromptSetAnswerer(lm, prompt_set), prompt_set.weights, record.n_parameters))
    return learned
