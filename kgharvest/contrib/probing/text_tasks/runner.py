"""Runner of text tasks. Imports torch, so only workers import this module."""

from contextlib import ExitStack
from functools import partial
from typing import Any

from kgharvest.contrib.probing.models import TextTask
from kgharvest.contrib.probing.probes.facts import documents_of
from kgharvest.contrib.probing.probes.runner import load_with_control
from kgharvest.contrib.probing.text_tasks.classification import classify_request
from kgharvest.contrib.probing.text_tasks.classification_records import classification_records
from kgharvest.contrib.probing.text_tasks.extraction import extract_request, extraction_records
from kgharvest.engine.language_models.masked import MaskedLM
from kgharvest.engine.types import EngineError, Progress
from kgharvest.harvests import language_models
from kgharvest.jobs import ledger
from kgharvest.models import Job, Relation


def run_text_task(job: Job, heartbeat: ledger.Heartbeat) -> ledger.Store:
    """Run a text task. Raises DomainError or EngineError for invalid inputs."""
    task = TextTask.objects.select_related("language_model").get(pk=job.pk)
    payload = task.payload
    heartbeat(Progress(language_models.LOADING, 0))
    search: Any = extraction_records
    if task.task == TextTask.Task.CLASSIFY:
        request, search = classify_request(task.lines, payload["options"]), classification_records
    else:
        relations = [Relation(**relation) for relation in payload["relations"]]
        documents = documents_of("the file", task.lines.encode())
        request = extract_request(relations, documents, payload["options"])
    with heartbeat.kept_alive():
        lm, control = load_with_control(
            task.language_model, payload["device"], payload["dtype"], payload["with_control"]
        )
    if not isinstance(lm, MaskedLM):
        raise EngineError(f"Text tasks require a masked LM, and {lm.name} is not one. Use a masked LM.")
    records: list[dict[str, Any]] = []
    with ExitStack() as stack:
        for loaded in filter(None, [lm, control]):
            stack.enter_context(loaded.ticking(lambda: heartbeat(Progress(task.task, len(records)))))
        records.extend(
            record | {"seconds": round(record["seconds"], 3), "dtype": payload["dtype"]}
            for record in search(lm, control, request=request)
        )
    return partial(TextTask.objects.filter(pk=task.pk).update, records=records)
