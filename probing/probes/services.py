"""Probes: asked for on a page or by the command, done by a worker or there, kept record by record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import transaction

from kgharvest.engine.types import N_TRIGGERS, Cancelled, EngineError, Progress
from kgharvest.errors import NotFound
from kgharvest.harvests import language_models
from kgharvest.harvests.runner import LOADING
from kgharvest.jobs import ledger
from kgharvest.models import Job, LanguageModel
from kgharvest.version import code_version
from probing.probes.document import probe_document
from probing.probes.facts import NotProbed, ProbeRelation
from probing.probes.models import LearnedPrompt, Probe, ProbedRelation, ProbeRecord

if TYPE_CHECKING:
    from kgharvest.engine.language_models.masked import MaskedLM
    from kgharvest.engine.prompt_learning.methods import ProbeTask
    from probing.probes.measures import Cell, Measured, Teach

METHODS = {
    "majority": "the objects that occur most, whatever the subject",
    "manual": "the relation's first prompt, as people wrote it",
    "lpaqa-top1": "the best of the given prompts",
    "lpaqa-rank": "the average of the best given prompts",
    "lpaqa": "the given prompts, with learned weights",
    "autoprompt": "trigger tokens, found by gradients",
    "soft": "the given prompts, their words learned as vectors",
    "soft-manual": "as soft, from the manual prompt alone",
    "soft-random": "as soft, from random vectors",
    "soft-data-dependent": "as soft, a prompt counting more where it expects the subject",
    "soft-deep": "as soft, and a change in every layer",
    "bertese": "one rewriter of all questions, into words",
    "bertese-continuous": "one rewriter of all questions, into vectors",
}
N_NEAREST = 5  # words that are kept for each soft word
STAGE_LENGTH = 60


@dataclass(frozen=True)
class ProbeParams:
    """How a probe is done. iterations: of AutoPrompt; epochs: of soft prompts and BERTese.

    common_with, words: ranks are counted among the words that these LMs, too, write as one token, and among `words`;
    without both among the whole vocabulary. prompts_of: an earlier probe whose prompts are asked; nothing is learned.
    """

    iterations: int = 150
    epochs: int = 16
    seed: int = 0
    with_control: bool = True
    device: str = "cpu"
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


# -- asking for one ----------------------------------------------------------------------------------------------------


@transaction.atomic
def create_probe(request: ProbeRequest, by=None) -> Probe:
    """Create a queued job with all it needs frozen in it. Raises NotProbed.

    `jobs.run_job` does it in this process; `queue_probe` leaves it to a worker.
    """
    if unknown := set(request.methods) - set(METHODS):
        raise NotProbed(f"There is no method {min(unknown)!r}; choose from {', '.join(METHODS)}.")
    if "autoprompt" in request.methods and request.params.iterations < N_TRIGGERS:
        raise NotProbed(f"AutoPrompt needs {N_TRIGGERS} iterations or more, one for each trigger; allow more.")
    probe = Probe.objects.create(
        kind=Probe.KIND,
        language_model=request.language_model,
        name=request.name[:200],
        methods=list(dict.fromkeys(request.methods)),
        facts=request.facts[:200],
        payload=asdict(request.params),
        created_by=by,
    )
    ProbedRelation.objects.bulk_create(
        ProbedRelation(probe=probe, name=one.name, type=one.type, prompts=one.prompts, facts=dict(one.facts))
        for one in request.relations
    )
    return probe


@transaction.atomic
def queue_probe(request: ProbeRequest, by=None) -> Probe:
    """Create a job and tell the workers."""
    probe = create_probe(request, by)
    ledger.enqueue(probe)
    return probe


# -- doing it ----------------------------------------------------------------------------------------------------------


def run_probe(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Runner of its kind of job. Goes on where an earlier claim on the same LM and code has left off."""
    probe = Probe.objects.select_related("language_model").get(pk=job.pk)
    params = ProbeParams(**job.payload)
    heartbeat(Progress(LOADING, 0))
    with heartbeat.kept_alive():
        lm, control = masked_lms(probe.language_model, params)
        vocabulary = common_vocabulary(lm, params)
    heartbeat.store(partial(_begin, probe, lm.revision or "", in_words(vocabulary, params)))
    _measure_all(probe, params, Subjects(lm, control, vocabulary), heartbeat)
    document = document_of(probe)
    return lambda: Probe.objects.filter(pk=probe.pk).update(document=document)


def masked_lms(language_model: LanguageModel, params: ProbeParams) -> tuple[MaskedLM, MaskedLM | None]:
    """Return the LM, and the same one with random weights if wanted. Raises EngineError unless it is a masked LM."""
    from kgharvest.engine.language_models.masked import MaskedLM

    lm = language_models.load(language_model, params.device, "float32")
    if not isinstance(lm, MaskedLM):
        raise EngineError(f"{language_model} is no masked LM, and the prompt systems are for those; name a masked one.")
    if not params.with_control:
        return lm, None
    return lm, language_models.load(language_model, params.device, "float32", random_seed=0)


def common_vocabulary(lm: MaskedLM, params: ProbeParams) -> list[int] | None:
    """Return the tokens among which ranks are counted, None for all. Raises NotProbed if there are none."""
    from kgharvest.engine.probing import common_words, token_of

    if not params.common_with and not params.words:
        return None
    others = [
        language_models.load(language_models.get_language_model(name), params.device, "float32")
        for name in params.common_with
    ]
    words = common_words([lm, *others], params.words or None)
    if not words:
        raise NotProbed("No word is one token of all these LMs; choose other LMs, or give a file of other words.")
    return sorted({token for word in words if (token := token_of(lm, word)) is not None})


def in_words(vocabulary: Sequence[int] | None, params: ProbeParams) -> str:
    """Say among what ranks are counted."""
    if vocabulary is None:
        return "full"
    with_others = f" common with {', '.join(params.common_with)}" if params.common_with else ""
    of_file = " of a file" if params.words else ""
    return f"{len(vocabulary):,} words{of_file}{with_others}"


def _begin(probe: Probe, revision: str, vocabulary: str) -> None:
    """Forget what another revision of the LM or of the code has measured."""
    now = {"revision": revision, "code_version": code_version(), "vocabulary": vocabulary}
    if any(getattr(probe, name) != value for name, value in now.items()):
        ProbeRecord.objects.filter(relation__probe=probe).delete()
        Probe.objects.filter(pk=probe.pk).update(**now)
        probe.refresh_from_db(fields=list(now))


class Subjects(NamedTuple):
    """The LM, its control if one is wanted, and the tokens among which ranks are counted."""

    lm: MaskedLM
    control: MaskedLM | None
    vocabulary: Sequence[int] | None


def _measure_all(probe: Probe, params: ProbeParams, subjects: Subjects, heartbeat: ledger.Heartbeat) -> None:
    from probing.probes.measures import cells_of, measure

    teach = teacher(params)
    lm, control, vocabulary = subjects
    relations = {relation.name: relation for relation in probe.relations.all()}
    cells = list(cells_of(probe.methods, _tasks(subjects, relations, heartbeat), [False, True] if control else [False]))
    measured_before = set(
        ProbeRecord.objects.filter(relation__probe=probe).values_list("relation__name", "method", "is_control")
    )
    for done, cell in enumerate(cells):
        if _keys(cell) <= measured_before:
            continue
        tick = partial(heartbeat, Progress(cell.name[:STAGE_LENGTH], done, len(cells)))
        try:
            found = measure(control if control and cell.is_control else lm, cell, teach, vocabulary, tick)
        except Cancelled:
            raise
        except EngineError as fault:
            heartbeat.store(partial(_add_fault, [relations[task.relation] for task in cell.tasks], str(fault)))
            continue
        rows = [_rows(lm, relations[one.task.relation], one) for one in found]
        heartbeat.store(partial(_store, rows))
    if not ProbeRecord.objects.filter(relation__probe=probe).exists():
        raise NotProbed(_faults_of(relations))


def teacher(params: ProbeParams) -> Teach:
    """Let methods learn anew, or recall what an earlier probe has kept. Raises NotFound."""
    from kgharvest.engine.prompt_learning.methods import Budget, learn
    from probing.probes.learned_prompts import recall

    if params.prompts_of is not None:
        return partial(recall, earlier=find_probe(params.prompts_of))
    return partial(learn, budget=Budget(params.iterations, params.epochs, seed=params.seed))


def find_probe(number: int) -> Probe:
    probe = Probe.objects.select_related("language_model").filter(pk=number).first()
    if probe is None:
        raise NotFound(f"There is no probe {number}; look at the list of probes for its number.")
    return probe


def kept_methods(earlier: Probe) -> list[str]:
    """Return the methods whose prompts a probe has kept. Raises NotProbed if there are none."""
    records = ProbeRecord.objects.filter(relation__probe=earlier, is_control=False).exclude(combine="")
    kept = set(records.values_list("method", flat=True))
    if not kept:
        raise NotProbed(f"Probe {earlier.pk} has kept no prompts; name another one.")
    return [method for method in earlier.methods if method in kept]


def _keys(cell: Cell) -> set[tuple[str, str, bool]]:
    return {(task.relation, cell.method, cell.is_control) for task in cell.tasks}


def _tasks(subjects: Subjects, relations: Mapping[str, ProbedRelation], heartbeat: ledger.Heartbeat) -> list[ProbeTask]:
    """Return what can be asked, and note of the other relations why not. Raises NotProbed if there is nothing else."""
    from probing.probes.measures import probe_task

    tasks = []
    for name, relation in relations.items():
        relation.fault = ""
        try:
            asked = ProbeRelation(name, relation.prompts, relation.facts)
            tasks.append(probe_task(subjects.lm, asked, subjects.vocabulary))
        except (NotProbed, EngineError) as fault:
            relation.fault = str(fault)
    heartbeat.store(partial(ProbedRelation.objects.bulk_update, list(relations.values()), ["fault"]))
    if not tasks:
        raise NotProbed(_faults_of(relations))
    return tasks


def _add_fault(relations: Sequence[ProbedRelation], fault: str) -> None:
    """Note why a method has no record. Where its control fails alike, that is said once."""
    for relation in relations:
        if fault not in relation.fault:
            relation.fault = f"{relation.fault} {fault}".lstrip()
    ProbedRelation.objects.bulk_update(relations, ["fault"])


def _faults_of(relations: Mapping[str, ProbedRelation]) -> str:
    return " ".join(dict.fromkeys(relation.fault for relation in relations.values() if relation.fault))


# -- storing -----------------------------------------------------------------------------------------------------------

Rows = tuple[ProbeRecord, list[LearnedPrompt]]


def _rows(lm: MaskedLM, relation: ProbedRelation, measured: Measured) -> Rows:
    from probing.probes.measures import record_of

    record = ProbeRecord(**record_of(measured) | {"relation": relation})
    prompts = [] if record.is_control else prompts_of(lm, measured)
    return record, [LearnedPrompt(record=record, **columns) for columns in prompts]


def _store(rows: Sequence[Rows]) -> None:
    for record, prompts in rows:
        record.save()
        LearnedPrompt.objects.bulk_create(prompts)


def prompts_of(lm: MaskedLM, measured: Measured) -> Iterator[dict[str, Any]]:
    """Yield the columns of a LearnedPrompt for each prompt that was learned, or for some rewrites."""
    from kgharvest.engine.prompt_learning.prompt_text import readable, words_by_distance
    from kgharvest.engine.prompt_learning.serialization import kept
    from probing.probes.measures import prompt_set_of

    asked = prompt_set_of(measured.learned)
    if asked is None:
        for before, after in measured.learned.rewrites:
            yield {"text": after, "rewritten_from": before, "weight": 1.0}
        return
    near = words_by_distance(lm, asked.soft_words.vectors, N_NEAREST) if asked.soft_words else []
    words = [nearest[0][0] for nearest in near]
    for prompt, one in zip(asked.prompts, kept(lm, asked), strict=True):
        soft = dict.fromkeys(token for segment in prompt.segments for token in segment if token >= lm.vocab_size)
        nearest = [near[token - lm.vocab_size] for token in soft]
        yield {"text": readable(lm, prompt, words), "nearest": nearest, **one._asdict()}


# -- what was found ----------------------------------------------------------------------------------------------------


def document_of(probe: Probe) -> dict[str, Any]:
    """Return the JSON of docs/probing.md, of what is measured so far."""
    relations = list(probe.relations.defer("facts", "prompts"))
    found = probe_document(records_of(probe), {relation.name: relation.type for relation in relations})
    return {
        "name": probe.name,
        "model": str(probe.language_model),
        "revision": probe.revision,
        "facts": probe.facts,
        "methods": probe.methods,
        **{name: probe.payload[name] for name in ("seed", "iterations", "epochs", "with_control", "device")},
        "code_version": probe.code_version,
        "vocabulary": probe.vocabulary,
        **found,
        "faults": {relation.name: relation.fault for relation in relations if relation.fault},
    }


def records_of(probe: Probe) -> list[dict[str, Any]]:
    """Return the records in the order of the methods, then of the relations."""
    columns = [field.name for field in ProbeRecord._meta.concrete_fields if field.name not in ("id", "relation")]
    rows = ProbeRecord.objects.filter(relation__probe=probe).order_by("relation_id", "is_control")
    found = [{"relation": row.pop("relation__name"), **row} for row in rows.values("relation__name", *columns)]
    return sorted(found, key=lambda record: probe.methods.index(record["method"]))
