"""Probe jobs: creation from frozen inputs, queueing, and results."""

from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import transaction

from kgharvest.accounts.projects import project_for
from kgharvest.contrib.probing.models import LearnedPrompt, Probe, ProbedRelation, ProbeRecord
from kgharvest.contrib.probing.probes.document import MEASURES, probe_document, spread, statistics
from kgharvest.contrib.probing.probes.facts import NotProbed, ProbeRelation
from kgharvest.contrib.probing.prompt_learning.registry import BUDGET_FIELDS, METHODS, LearningBudget
from kgharvest.engine.language_models.networks.placement import DEFAULT_DEVICE, DEFAULT_DTYPE, FLOATS, QUANTIZED
from kgharvest.errors import NotFound
from kgharvest.harvests import language_models
from kgharvest.jobs import ledger
from kgharvest.models import LanguageModel, Project
from kgharvest.tables.formats import to_json

N_DRAWN = 12  # prompts with learned words in the document, as in Figure 1 of Qin & Eisner (2021)
SOFT_WORDS = "soft words"  # statistics of one relation and method, which the command does not print
N_PROMPTS = 5  # maximum number of prompts in a record; the file of prompts contains all of them


@dataclass(frozen=True)
class ProbeParams(LearningBudget):
    """Parameters of a probe.

    with_control: also run every method on the LM with random weights. common_with: names of LMs; ranks are counted only
    among words that are single tokens in all of them. words: words among which ranks are counted. Default of both: the
    whole vocabulary. prompts_of: id of an earlier probe whose prompts are used instead of learning. split: the split of
    the facts, drawn with `seed`, or empty for their own parts.
    """

    with_control: bool = True
    device: str = DEFAULT_DEVICE
    dtype: str = DEFAULT_DTYPE
    common_with: Sequence[str] = ()
    words: Sequence[str] = ()
    prompts_of: int | None = None
    split: str = ""


@dataclass(frozen=True)
class ProbeRequest:
    """Inputs of a probe. name: collective name of the relations. facts: name of the fact source."""

    language_model: LanguageModel
    relations: Sequence[ProbeRelation]
    methods: Sequence[str]
    name: str
    facts: str
    params: ProbeParams = ProbeParams()


@transaction.atomic
def create_probe(request: ProbeRequest, by=None, project: Project | None = None, unique_key: str = "") -> Probe:
    """Create a job with frozen inputs. Raises NotProbed, EngineError, NotAllowed, and ProjectNotNamed.

    To run it in this process, call `ledger.run_job`; for a worker, use `queue_probe`.
    """
    check_probe(request)
    probe = Probe.objects.create(
        kind=Probe.KIND,
        project=project_for(by, project),
        language_model=request.language_model,
        name=request.name[:200],
        methods=list(dict.fromkeys(request.methods)),
        facts=request.facts[:200],
        payload=asdict(request.params),
        unique_key=unique_key,
        lm=language_models.in_words(str(request.language_model), request.params.device, request.params.dtype),
        created_by=by,
    )
    ProbedRelation.objects.bulk_create(ProbedRelation(probe=probe, **vars(relation)) for relation in request.relations)
    return probe


@transaction.atomic
def queue_probe(request: ProbeRequest, by=None, project: Project | None = None, unique_key: str = "") -> Probe:
    """Create a probe and enqueue it for a worker. Raises the same errors as create_probe."""
    probe = create_probe(request, by, project, unique_key)
    ledger.enqueue(probe)
    return probe


def check_probe(request: ProbeRequest) -> None:
    """Raise NotProbed or EngineError if `create_probe` would raise it."""
    if unknown := set(request.methods) - set(METHODS):
        raise NotProbed(f"Unknown method {min(unknown)!r}. Use {', '.join(METHODS)}.")
    missing_starts = {"mined", "paraphrased"}.difference(*(relation.origins for relation in request.relations))
    for method in map(METHODS.get, request.methods):
        options, start = request.params.of(method), method.options.get("start")
        if start in missing_starts and request.params.prompts_of is None:
            raise NotProbed(
                f"{method.name} needs {start} prompts. Add them as {start}/RELATION.jsonl in the prompts folder."
            )
        for parameter, required in method.needs.items():
            if options[parameter] < options[required]:
                raise NotProbed(f"{method.label} needs at least {options[required]} {parameter}. Increase {parameter}.")
    check_lm(request.language_model, request.params.device, request.params.dtype, request.params.with_control)


def check_lm(language_model: LanguageModel, device: str, dtype: str, with_control: bool) -> None:
    """Raise EngineError or NotProbed unless the LM and its control can be loaded with this device and dtype."""
    language_models.check_where(language_model.name, device, dtype)
    if with_control and dtype in QUANTIZED:
        raise NotProbed(f"The control does not support {dtype}. Disable the control or use {', '.join(FLOATS)}.")


def find_probe(number: int, user=None) -> Probe:
    """Return the probe if it is visible to `user`. Raises NotFound."""
    probe = Probe.objects.visible_to(user).select_related("language_model").filter(pk=number).first()
    if probe is None:
        raise NotFound(f"Probe {number} not found. See the list of probes for valid numbers.")
    return probe


def methods_with_prompts(probe: Probe) -> list[str]:
    """Return the methods with stored prompts. Raises NotProbed if there are none."""
    records = ProbeRecord.objects.filter(relation__probe=probe, is_control=False).exclude(combine="")
    with_prompts = set(records.values_list("method", flat=True))
    if not with_prompts:
        raise NotProbed(f"Probe {probe.pk} has no stored prompts. Select another probe.")
    return [method for method in probe.methods if method in with_prompts]


def document_of(probe: Probe) -> dict[str, Any]:
    """Return the document described in docs/probing.md, for the records so far."""
    relations, records, words = list(probe.relations.all()), records_of(probe), list(_learned_words(probe))
    return {
        "name": probe.name,
        "model": str(probe.language_model),
        "revision": probe.revision,
        "facts": probe.facts,
        "methods": probe.methods,
        **{name: probe.payload.get(name) for name in (*BUDGET_FIELDS, "preset", "with_control", "device", "split")},
        "dtype": dtype_of(probe),
        "code_version": probe.code_version,
        "vocabulary": probe.vocabulary,
        **probe_document(records, {relation.name: relation.type for relation in relations}),
        "statistics": [*statistics(relations, records), *(row for entry in words for row in entry.pop("statistics"))],
        "learned_words": words,
        "rewrites": [
            {"relation": prompt.record.relation.name, "method": prompt.record.method, **_prompt_entry(prompt)}
            for prompt in learned_prompts(probe).exclude(rewritten_from="").defer("vectors", "nearest")
        ],
        "faults": {relation.name: relation.fault for relation in relations if relation.fault},
    }


def _learned_words(probe: Probe) -> Iterator[dict[str, Any]]:
    """Yield the heaviest prompts with learned words by record, with statistics over all learned words."""
    by_record: dict[tuple[str, str], list[LearnedPrompt]] = defaultdict(list)
    for prompt in learned_prompts(probe).exclude(learned=[]).defer("vectors", "nearest"):
        by_record[prompt.record.method, prompt.record.relation.name].append(prompt)
    for (method, relation), prompts in by_record.items():
        words = [part for prompt in prompts for part in prompt.learned if isinstance(part, dict)]
        names = {"p": "p(w | v)", "original_p": "p(w0 | v0)", "norm_ratio": "norm ratio"}
        yield {
            "method": method,
            "relation": relation,
            "prompts": [{"weight": prompt.weight, "parts": prompt.learned} for prompt in prompts[:N_DRAWN]],
            "statistics": [
                spread(f"{name}, {method}, {relation}", SOFT_WORDS, (word[key] for word in words))
                for key, name in names.items()
            ],
        }


def dtype_of(probe: Probe) -> str:
    """Return the dtype of the LM's weights. Older versions did not store it and used the default."""
    return str(probe.payload.get("dtype", DEFAULT_DTYPE))


def records_of(probe: Probe) -> list[dict[str, Any]]:
    """Return the records, sorted by method, then by relation."""
    columns = [field.name for field in ProbeRecord._meta.concrete_fields if field.name not in ("id", "relation")]
    rows = ProbeRecord.objects.filter(relation__probe=probe).order_by("relation_id", "is_control")
    records = [{"relation": row.pop("relation__name"), **row} for row in rows.values("relation__name", *columns)]
    return sorted(records, key=lambda record: probe.methods.index(record["method"]))


def learned_prompts(probe: Probe):
    """Return the learned prompts by record, in order of decreasing weight."""
    prompts = LearnedPrompt.objects.filter(record__relation__probe=probe).select_related("record__relation")
    return prompts.order_by("record_id", "-weight", "pk")


def record_lines(probe: Probe) -> Iterator[str]:
    """Yield records as JSON lines, in method order. docs/probing.md describes the keys."""
    records = records_of(probe)
    controls = {(record["relation"], record["method"]): record for record in records if record["is_control"]}
    prompts: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)  # by relation and method
    for prompt in learned_prompts(probe).defer("vectors", "nearest"):
        entries = prompts[prompt.record.relation.name, prompt.record.method]
        if len(entries) < N_PROMPTS or prompt.rewritten_from:
            entries.append(_prompt_entry(prompt))
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


def _prompt_entry(prompt: LearnedPrompt) -> dict[str, Any]:
    text = {"text": prompt.text, "weight": prompt.weight}
    if prompt.rewritten_from:
        return {"before": prompt.rewritten_from, "part": prompt.part, **text}
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
            "learned": prompt.learned,
            "vectors": b64encode(prompt.vectors).decode(),
        }
        yield to_json(entry) + "\n"


JSON_LINES = {"records": record_lines, "prompts": prompt_lines}
