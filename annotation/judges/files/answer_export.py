"""Export of judge answers, in the formats that `answer_import` reads."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from annotation.judges.models import JudgeAnswer, JudgeRun
from annotation.judges.prompts import fill, sha256_of
from annotation.judges.runs import JudgedTuple, tuples_to_judge
from kgharvest import VERSION
from kgharvest.errors import DomainError


def export_answers(run: JudgeRun, file_format: str) -> Iterator[str]:
    """Yield the lines of a file in one of FORMATS, ordered by tuple and repeat. Raises UnknownFormat."""
    if file_format not in FORMATS:
        raise DomainError("UnknownFormat", f"Unknown format {file_format!r}. Use one of {', '.join(FORMATS)}.")
    return FORMATS[file_format].write(run)


class Written(NamedTuple):
    """An answer with its relation path, the tuple's entities as written, and the judged statement."""

    answer: JudgeAnswer
    relation: str
    entities: Sequence[str]
    statement: str


def _written(run: JudgeRun) -> Iterator[Written]:
    judged: dict[int, JudgedTuple] = {}
    with suppress(DomainError):  # a draft may no longer have tuples; the answers remain
        judged = {row.tuple_id: row for row in tuples_to_judge(run)}
    answers = run.answers.select_related("knowledge_tuple__relation__relation_set").order_by(
        "knowledge_tuple", "repeat"
    )
    for answer in answers.iterator():
        stored = answer.knowledge_tuple
        row = judged.get(stored.pk) or JudgedTuple(stored.pk, stored.relation_id, "", stored.entities)
        yield Written(answer, stored.relation.path, row.entities, row.statement)


def _as_lines(run: JudgeRun) -> Iterator[str]:
    for answer, relation, entities, statement in _written(run):
        document = {
            "relation": relation,
            "entities": entities,
            "statement": statement,
            "repeat": answer.repeat,
            "label": answer.label,
            "raw": answer.raw,
            "score": answer.score,
            "model": answer.model_reported,
            "prompt_sha256": answer.prompt_sha256,
            "n_prompt_tokens": answer.n_prompt_tokens,
            "n_completion_tokens": answer.n_completion_tokens,
            "cost": float(answer.cost),
            "seconds": answer.seconds,
            "answered_at": answer.answered_at.isoformat(),
        }
        yield json.dumps(document, ensure_ascii=False) + "\n"


def _prompt_of(run: JudgeRun, written: Written) -> str:
    texts = run.relation_texts.get(str(written.answer.knowledge_tuple.relation_id))
    return fill(run.prompt, written.statement, texts) if run.prompt and texts and "instructions" in texts else ""


def _as_inspect(run: JudgeRun) -> Iterator[str]:
    created = run.created_at.isoformat()
    model = run.model or "unknown"
    head = {
        "version": 2,
        "status": "success" if run.status == run.Status.SUCCEEDED else "cancelled",
        "eval": {
            "run_id": f"judge-run-{run.pk}",
            "created": created,
            "task": run.name,
            "task_id": f"judge-run-{run.pk}",
            "task_version": 0,
            "dataset": {"name": run.round.path, "samples": run.answers.values("knowledge_tuple").distinct().count()},
            "model": model,
            "model_generate_config": {"temperature": run.temperature, "seed": run.seed},
            "config": {"epochs": run.repeats},
            "packages": {"kgharvest": VERSION},
            "metadata": {"prompt": run.prompt, "prompt_sha256": run.prompt_sha256, "kind": run.judge_kind},
        },
        "plan": {},
        "stats": {
            "started_at": (run.started_at or run.created_at).isoformat(),
            "completed_at": (run.finished_at or run.created_at).isoformat(),
        },
    }
    text = json.dumps(head, ensure_ascii=False)
    yield text[:-1] + ', "samples": ['
    for position, written in enumerate(_written(run)):
        yield (",\n" if position else "\n") + json.dumps(_inspect_entry(run, written), ensure_ascii=False)
    yield "\n]}\n"


def _inspect_entry(run: JudgeRun, written: Written) -> dict[str, Any]:
    answer, prompt = written.answer, _prompt_of(run, written) or written.statement
    message = {"role": "assistant", "content": answer.raw, "source": "generate"}
    n_tokens = {"input_tokens": answer.n_prompt_tokens, "output_tokens": answer.n_completion_tokens}
    return {
        "id": answer.knowledge_tuple_id,
        "epoch": answer.repeat + 1,
        "input": prompt,
        "target": "",
        "messages": [{"role": "user", "content": prompt, "source": "input"}, message],
        "output": {
            "model": answer.model_reported or run.model,
            "choices": [{"message": message, "stop_reason": "stop"}],
            "usage": n_tokens | {"total_tokens": sum(n_tokens.values())},
            "time": answer.seconds,
        },
        "scores": {"judge_label": {"value": answer.label or "N", "answer": answer.raw}},
        "metadata": {
            "relation": written.relation,
            "entities": list(written.entities),
            "statement": written.statement,
            "prompt_sha256": answer.prompt_sha256,
        },
    }


def _as_lm_eval(run: JudgeRun) -> Iterator[str]:
    of_tuple: list[Written] = []
    for written in _written(run):
        if of_tuple and of_tuple[0].answer.knowledge_tuple_id != written.answer.knowledge_tuple_id:
            yield _lm_eval_line(run, of_tuple)
            of_tuple = []
        of_tuple.append(written)
    if of_tuple:
        yield _lm_eval_line(run, of_tuple)


def _lm_eval_line(run: JudgeRun, of_tuple: Sequence[Written]) -> str:
    first = of_tuple[0]
    doc = {"relation": first.relation, "entities": list(first.entities), "statement": first.statement}
    prompt = _prompt_of(run, first) or first.statement
    raws = [written.answer.raw for written in of_tuple]
    generation = {"temperature": run.temperature, "max_gen_toks": run.max_completion_tokens, "until": []}
    document = {
        "doc_id": first.answer.knowledge_tuple_id,
        "doc": doc,
        "target": "",
        "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": generation}},
        "resps": [raws],
        "filtered_resps": raws[:1],
        "filter": "none",
        "metrics": [],
        "doc_hash": sha256_of(json.dumps(doc, indent=2, ensure_ascii=False)),
        "prompt_hash": sha256_of(prompt),
        "target_hash": sha256_of(""),
    }
    return json.dumps(document, ensure_ascii=False) + "\n"


class Format(NamedTuple):
    extension: str
    media_type: str
    write: Callable[[JudgeRun], Iterator[str]]


FORMATS: Mapping[str, Format] = {
    "jsonl": Format("jsonl", "application/x-ndjson", _as_lines),
    "inspect": Format("json", "application/json", _as_inspect),
    "lm-eval": Format("jsonl", "application/x-ndjson", _as_lm_eval),
}
