"""Import of judge answers: JSON lines of kgharvest, eval logs of inspect-ai, and logged samples of lm-eval.

inspect-ai: JSON of `EvalLog` (https://inspect.aisi.org.uk/eval-logs.html), one sample per tuple and epoch. lm-eval:
JSON lines of `--log_samples` (lm_eval.evaluator), one line per tuple, with repeats in `resps`. Both formats store the
tuple as `relation` (set/name) and `entities` in user-defined fields: `metadata` of a sample, or `doc` of a line.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from django.db import transaction
from django.utils import timezone

from annotation.judges.models import JudgeKind, JudgeRun
from annotation.judges.runs import Answered, Question, prepare_run, record_run, save_run, store_answers, tuples_to_judge
from annotation.judges.specs import run_from_spec
from annotation.models import Round
from kgharvest.bulk.file_reading import decode_utf8, parse_json, read_bytes, read_json_objects
from kgharvest.bulk.file_values import BadValue, read_entities, read_label
from kgharvest.bulk.insert import storable
from kgharvest.entities.tables import canonical_entities
from kgharvest.errors import BadEntry, DomainError, ImportRefused
from kgharvest.models import KnowledgeTuple, Relation, tuple_key

MOST_REPEATS = 99
LARGEST_COUNT = 2**31 - 1
LONGEST_MODEL = JudgeRun._meta.get_field("model").max_length


class FileAnswer(NamedTuple):
    """An answer in a file. where: location in the file, for example "line 3". reply: values for fields of Answered."""

    where: str
    relation: str
    entities: Sequence[str]
    repeat: int
    reply: Mapping[str, Any]


AnswerReader = Callable[[Any], Iterable[tuple[str, Sequence[str], int, Mapping[str, Any]]]]  # raises BadValue


def import_file(round: Round, document: Mapping[str, Any], path: Path | str, by=None) -> JudgeRun:
    """Import the answer file at `path`. Raises the same errors as import_answers.

    Only commands may call this function, because their operator may read any file.
    """
    path = Path(path)
    return import_answers(round, document, read_bytes(path), path.name, by)


def import_answers(round: Round, document: Mapping[str, Any], content: bytes, source: str, by=None) -> JudgeRun:
    """Import all answers of a file as a run of kind file, or store nothing.

    If the spec names no LM, the file's LM is used. Raises ImportRefused with the invalid lines, or the errors of
    create_run.
    """
    run, _ = run_from_spec(document)
    if run.judge_kind != JudgeKind.FILE:
        raise DomainError("BadJudgeSpec", f"kind is {run.judge_kind}. Set it to file to import answers.")
    prepare_run(run, round, by)
    entries = list(read_answers(decode_utf8(content, source)))
    faults = [entry for entry in entries if isinstance(entry, BadEntry)]
    answers, unmatched = _matched(run, [entry for entry in entries if isinstance(entry, FileAnswer)])
    if faults or unmatched or not answers:
        raise ImportRefused(source, [*faults, *unmatched] or [BadEntry("file", "has no answers")])
    models = sorted({answer.model_reported for answer in answers} - {""})
    run.model = run.model or storable(models[0] if models else "")[:LONGEST_MODEL]
    run.repeats = 1 + max(answer.question.repeat for answer in answers)
    now = timezone.now()
    run.status, run.started_at, run.finished_at = run.Status.SUCCEEDED, now, now
    run.done = run.total = len(answers)
    with transaction.atomic():
        save_run(run)
        store_answers(run, answers)
        record_run(run, by)
    return run


def _matched(run: JudgeRun, entries: Iterable[FileAnswer]) -> tuple[list[Answered], list[BadEntry]]:
    judged = {row.tuple_id: row for row in tuples_to_judge(run)}
    relations = Relation.objects.select_related("relation_set").in_bulk({row.relation_id for row in judged.values()})
    names: dict[str, set[int]] = defaultdict(set)
    for relation in relations.values():
        names[relation.path].add(relation.pk)
        names[relation.name].add(relation.pk)
    stored = KnowledgeTuple.objects.filter(relation__in=relations).values_list("relation_id", "key", "pk")
    by_key = {(relation_id, key): judged[pk] for relation_id, key, pk in stored.iterator() if pk in judged}
    canonical = canonical_entities(dict.fromkeys(relations.values()))
    answers, faults, seen = [], [], set()
    for entry in entries:
        relation_ids = names.get(entry.relation, set())
        row = None
        if len(relation_ids) == 1:
            [relation_id] = relation_ids
            row = by_key.get((relation_id, tuple_key(canonical[relation_id](entry.entities))))
        if len(relation_ids) > 1:
            faults.append(BadEntry(entry.where, f"names {entry.relation}, which is in several sets; use set/name"))
        elif row is None:
            entities = " · ".join(entry.entities)
            faults.append(BadEntry(entry.where, f"is about {entities} of {entry.relation}, which is not in the round"))
        elif (question := (row.tuple_id, entry.repeat)) in seen:
            faults.append(BadEntry(entry.where, "repeats an earlier question; number the repeats"))
        else:
            seen.add(question)
            answers.append(Answered(Question(row, entry.repeat), **entry.reply))
    return answers, faults


def read_answers(text: str) -> Iterator[FileAnswer | BadEntry]:
    """Yield the answers of a file in any supported format, or the faults of its lines or samples."""
    try:
        whole = parse_json(text)
    except json.JSONDecodeError:
        whole = None
    if isinstance(whole, dict) and "samples" in whole:
        samples = whole["samples"] if isinstance(whole["samples"], list) else []
        for number, sample in enumerate(samples, start=1):
            yield from _read(f"sample {number}", sample, partial(_from_inspect, whole))
        return
    first_filter = None
    for line in read_json_objects(text.split("\n")):  # splitlines would also split at characters within JSON strings
        if isinstance(line, BadEntry):
            yield line
            continue
        # lm-eval writes one line per filter, with the same answers.
        first_filter = first_filter or line.value.get("filter")
        if line.value.get("filter") in (None, first_filter):
            reader = _from_lm_eval if "doc" in line.value else _from_line
            yield from _read(f"line {line.number}", line.value, reader)


def _read(where: str, value: Any, reader: AnswerReader) -> Iterator[FileAnswer | BadEntry]:
    try:
        yield from [FileAnswer(where, *answer) for answer in reader(value)]
    except BadValue as fault:
        yield BadEntry(where, str(fault))


def _about(fields: Any) -> tuple[str, Sequence[str]]:
    relation, entities = (fields.get(name) if isinstance(fields, dict) else None for name in ("relation", "entities"))
    if not isinstance(relation, str) or not relation or relation != storable(relation):
        raise BadValue("has no relation")
    return relation, read_entities(entities)


def _count(value: Any, name: str, most: int = LARGEST_COUNT) -> int:
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value <= most:
        raise BadValue(f"has {name} {value!r:.40}; give a whole number from 0 to {most}")
    return value


def _number(value: Any, name: str) -> float | None:
    if value is not None and not (type(value) in (int, float) and abs(value) <= 1e12):  # also rejects NaN
        raise BadValue(f"has {name} {value!r:.40}; give a number")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise BadValue(f"has {name} {value!r:.40}; give a string")
    return value


def _from_line(value: dict[str, Any]) -> Iterator[tuple[str, Sequence[str], int, dict[str, Any]]]:
    relation, entities = _about(value)
    label = value.get("label")
    if label not in (None, ""):
        try:
            label = read_label(label)
        except BadValue:
            raise BadValue(f'has the label {label!r:.40}; use True, False, Unjudgeable, or "" for none') from None
    if label is None and "raw" not in value:
        raise BadValue("has neither label nor raw")
    repeat = _count(value.get("repeat"), "repeat", MOST_REPEATS - 1)
    reply = {"raw": _text(value.get("raw", label), "raw"), "label": label}
    reply["model_reported"] = _text(value.get("model", ""), "model")
    reply |= {name: _count(value.get(name), name) for name in ("n_prompt_tokens", "n_completion_tokens")}
    reply |= {name: _number(value.get(name), name) for name in ("seconds", "score")}
    reply["prompt_sha256"] = _text(value.get("prompt_sha256", ""), "prompt_sha256")[:64]
    yield relation, entities, repeat, reply


def _from_inspect(log: Mapping[str, Any], sample: Any) -> Iterator[tuple[str, Sequence[str], int, dict[str, Any]]]:
    relation, entities = _about(sample.get("metadata") if isinstance(sample, dict) else None)
    try:
        output = sample["output"]
        content = output["choices"][0]["message"]["content"]
        usage = dict(output.get("usage") or {})
        model = output.get("model") or log["eval"]["model"]
    except (LookupError, TypeError, AttributeError, ValueError):
        raise BadValue("has no model output") from None
    if (epoch := _count(sample.get("epoch", 1), "epoch", MOST_REPEATS)) == 0:
        raise BadValue(f"has epoch {sample['epoch']!r}; give a whole number from 1 to {MOST_REPEATS}")
    if isinstance(content, list):
        content = "".join(_text(part.get("text", ""), "text") for part in content if isinstance(part, dict))
    reply = {
        "raw": _text(content, "content"),
        "model_reported": _text(model, "model"),
        "n_prompt_tokens": _count(usage.get("input_tokens"), "input_tokens"),
        "n_completion_tokens": _count(usage.get("output_tokens"), "output_tokens"),
        "seconds": _number(output.get("time"), "time"),
    }
    yield relation, entities, epoch - 1, reply


def _from_lm_eval(value: dict[str, Any]) -> Iterator[tuple[str, Sequence[str], int, dict[str, Any]]]:
    relation, entities = _about(value["doc"])
    yield from ((relation, entities, repeat, {"raw": raw}) for repeat, raw in enumerate(_lm_eval_texts(value)))


def _lm_eval_texts(value: Mapping[str, Any]) -> list[str]:
    """Return the generated texts, one per repeat, or the most likely of the given choices."""
    resps = value.get("resps")
    try:
        if isinstance(resps[0], list) and all(isinstance(text, str) for text in resps[0]):
            return list(resps[0])[:MOST_REPEATS]
        logprobs = [float(resp[0][0]) for resp in resps]
        likeliest = logprobs.index(max(logprobs))
        return [value["arguments"][f"gen_args_{likeliest}"]["arg_1"].strip()]
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        raise BadValue("has no resps of generate_until or loglikelihood requests") from None
