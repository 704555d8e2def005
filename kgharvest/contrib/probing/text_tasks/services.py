"""Jobs of text tasks: creation from frozen inputs, and queueing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from kgharvest.accounts.projects import project_for
from kgharvest.contrib.probing.models import TextTask
from kgharvest.contrib.probing.probes.facts import documents_of
from kgharvest.contrib.probing.probes.services import check_lm
from kgharvest.contrib.probing.text_tasks.evidenced_facts import extract_template, extracted_relations
from kgharvest.contrib.probing.text_tasks.labelled_texts import labelled_texts
from kgharvest.contrib.probing.text_tasks.options import METHODS_OF, default_options
from kgharvest.engine.language_models.networks.placement import DEFAULT_DEVICE, DEFAULT_DTYPE
from kgharvest.errors import DomainError
from kgharvest.harvests import language_models
from kgharvest.jobs import ledger
from kgharvest.models import LanguageModel, Project, Relation


@dataclass(frozen=True)
class TextTaskRequest:
    """Inputs of a text task. lines: JSON lines of texts or facts with "part". options: changes of `default_options`."""

    task: str
    language_model: LanguageModel
    name: str
    lines: str
    relations: Sequence[Relation] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    with_control: bool = True
    device: str = DEFAULT_DEVICE
    dtype: str = DEFAULT_DTYPE


@transaction.atomic
def queue_text_task(request: TextTaskRequest, by=None, project: Project | None = None) -> TextTask:
    """Create a text task and enqueue it for a worker.

    Raises DomainError, EngineError, ImportRefused with all invalid lines, NotAllowed, and ProjectNotNamed.
    """
    project = project_for(by, project)
    options = default_options(request.task) | request.options
    if unknown := [method for method in options["methods"] if method not in METHODS_OF[request.task]]:
        supported = ", ".join(METHODS_OF[request.task])
        raise DomainError("NotStarted", f"{request.task} has no method {unknown[0]}. Use {supported}.")
    if request.task == TextTask.Task.EXTRACT and not request.relations:
        raise DomainError("NotStarted", "extract requires relations. Select a relation set.")
    if request.task == TextTask.Task.EXTRACT:
        extracted_relations(request.relations, documents_of("the file", request.lines.encode()))
        extract_template(options)
    else:
        labelled_texts(request.lines, options)
    check_lm(request.language_model, request.device, request.dtype, request.with_control)
    columns = ("name", "arity", "initial_prompts", "prompts")
    relations = [{column: getattr(relation, column) for column in columns} for relation in request.relations]
    task = TextTask.objects.create(
        kind=TextTask.KIND,
        project=project,
        task=request.task,
        language_model=request.language_model,
        name=request.name[:200],
        payload={
            "device": request.device,
            "dtype": request.dtype,
            "with_control": request.with_control,
            "options": options,
            "relations": relations,
        },
        lines=request.lines,
        lm=language_models.in_words(str(request.language_model), request.device, request.dtype),
        created_by=by,
    )
    ledger.enqueue(task)
    return task
