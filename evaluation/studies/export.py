"""Study file of a round: reproduces its harvests and its sample in another project or installation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from annotation.judges.models import JudgeKind
from annotation.judges.specs import spec_of
from annotation.models import Round
from annotation.rounds.builder import instructions_by_relation
from evaluation.studies.schema import SAMPLE, HarvestSection
from evaluation.studies.services import sampled_jobs
from kgharvest.chat_models.options import ChatOptions, to_json
from kgharvest.engine.settings import SETTINGS
from kgharvest.engine.types import HarvestParams, ParaphraserSettings
from kgharvest.errors import DomainError
from kgharvest.models import HarvestJob, Relation
from kgharvest.packaged_lms import is_on_hub
from kgharvest.relations.files import EXPORTED_COLUMNS

TEXTS = ("initial_prompts", "prompts", "seed_tuples")  # of a relation, as frozen in its harvests
Cell = tuple[str, str, str]  # relation, LM, and setting, as named in the file


def study_of_round(round: Round) -> dict[str, Any]:
    """Return the document of a study with the harvests, the sample, and the judges of an opened round.

    For a round that was made by a study, this is its document. Raises NotReproducible.
    """
    if study := getattr(round, "study", None):
        return dict(study.document)
    if round.status == Round.Status.DRAFT or not round.spec:
        raise DomainError("NotReproducible", f"Round {round.name} has no drawn sample. Open the round first.")
    jobs = _reproducible_jobs(round)
    names = _relation_names([job.relation for job in jobs])
    texts = {pk: _texts([job for job in jobs if job.relation_id == pk]) for pk in names}
    sections: dict[str, tuple[dict[str, Any], list[Cell]]] = {}
    for job in jobs:
        options = _options(job, texts[job.relation_id])
        _, cells = sections.setdefault(repr(options), (options, []))
        cells.append(_cell(job, names))
    harvests = [
        {"relations": relations, _key_of_models(settings): models, "settings": settings, **options}
        for options, cells in sections.values()
        for relations, models, settings in _products(cells)
    ]
    document = {
        "name": round.name,
        "description": f"Reproduces round {round.path}.",
        "relations": [_relation(relation, name, texts[relation.pk]) for relation, name in _with_names(jobs, names)],
        "harvests": harvests,
        "round": _round(round, [_cell(job, names) for job in jobs], harvests, names),
    }
    if round.source == Round.Source.SIMULATED:
        document["simulation"] = {"seed": 0}
    judges = round.judge_runs.exclude(judge_kind=JudgeKind.FILE).order_by("pk")
    return document | ({"judges": [dict(spec_of(run)) for run in judges]} if judges else {})


def _reproducible_jobs(round: Round) -> list[HarvestJob]:
    """Return the harvests of the round in the order of its cells. Raises NotReproducible for imported tuples."""
    jobs = sampled_jobs(round)
    for job in jobs:
        if job.origin != HarvestJob.Origin.HARVESTED or "spec" not in job.payload:
            raise DomainError("NotReproducible", f"The tuples of {job} were imported, so no study can harvest them.")
    if len(jobs) != len(round.spec["cells"]) or round.strata.filter(job=None).exists():
        raise DomainError("NotReproducible", f"Round {round.name} has statements without a harvest.")
    return jobs


def _relation_names(relations: Sequence[Relation]) -> dict[int, str]:
    """Return the name of each relation in the file by id. Relations of the same name get the name of their set, too."""
    distinct = {relation.pk: relation for relation in relations}
    names = [relation.name for relation in distinct.values()]
    return {
        pk: relation.name if names.count(relation.name) == 1 else f"{relation.relation_set.name}-{relation.name}"
        for pk, relation in distinct.items()
    }


def _with_names(jobs: Sequence[HarvestJob], names: Mapping[int, str]) -> Iterator[tuple[Relation, str]]:
    relations = {job.relation_id: job.relation for job in jobs}
    return ((relations[pk], name) for pk, name in names.items())


def _texts(jobs: Sequence[HarvestJob]) -> dict[str, Any]:
    """Return the texts of the relation with which every harvest can be repeated. Raises NotReproducible."""
    relation = jobs[0].relation
    candidates = [{name: getattr(relation, name) for name in TEXTS}]
    candidates += [{name: job.payload["spec"][name] for name in TEXTS} for job in jobs]
    for texts in candidates:
        if all(_prompts(job, texts) is not None for job in jobs):
            return texts
    raise DomainError(
        "NotReproducible", f"The relation {relation.path} was changed between its harvests. Harvest it again."
    )


def _prompts(job: HarvestJob, texts: Mapping[str, Any]) -> list[str] | None:
    """Return the prompts that replace those of the relation, empty for none; None if no prompts reproduce the job."""
    spec = job.payload["spec"]
    if all(spec[name] == texts[name] for name in TEXTS):
        return []
    is_replaced = spec["initial_prompts"] == spec["prompts"] and spec["seed_tuples"] == texts["seed_tuples"]
    return list(spec["prompts"]) if is_replaced else None


def _relation(relation: Relation, name: str, texts: Mapping[str, Any]) -> dict[str, Any]:
    columns = {column: getattr(relation, column) for column in EXPORTED_COLUMNS} | texts | {"name": name}
    return {column: value for column, value in columns.items() if value}


def _options(job: HarvestJob, texts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a harvest section that are not defaults. Raises NotReproducible."""
    payload, defaults = job.payload, HarvestParams()
    params = {name: value for name, value in payload["spec"]["params"].items() if value != _plain(defaults, name)}
    if params.get("max_entity_repeats", 0) is None:
        params["max_entity_repeats"] = 0
    if unknown := sorted(params.keys() - HarvestSection().fields.keys()):
        raise DomainError("NotReproducible", f"{job} has the parameter {unknown[0]}, which no study file has.")
    paraphraser = payload["spec"]["paraphraser"].items()
    chat = payload.get("chat", {}).items()
    default_paraphraser, default_chat = asdict(ParaphraserSettings()), to_json(ChatOptions())
    options = {
        **params,
        "prompts": _prompts(job, texts),
        "device": payload["device"],
        "dtype": payload["dtype"],
        "paraphraser": {name: value for name, value in paraphraser if value != default_paraphraser[name]},
        "chat": {name: value for name, value in chat if value != default_chat[name]},
    }
    fields = HarvestSection().fields
    return {
        name: value
        for name, value in options.items()
        if value not in ([], {}) and not (name in ("device", "dtype") and value == fields[name].default)
    }


def _plain(params: HarvestParams, name: str) -> Any:
    value = getattr(params, name)
    return sorted(value) if isinstance(value, frozenset) else value


def _cell(job: HarvestJob, names: Mapping[int, str]) -> Cell:
    name = str(job.language_model)
    revision = job.summary.get("revision")
    # A hub model without a revision can change; its harvest has stored the commit.
    if revision and name == job.language_model.name and is_on_hub(name):
        name = f"{name}@{revision}"
    return names[job.relation_id], name, job.setting


def _key_of_models(settings: Sequence[str]) -> str:
    return "chat_models" if SETTINGS[settings[0]].asks_chat else "models"


def _products(cells: Sequence[Cell]) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Yield relations, LMs, and settings whose products are exactly the cells."""
    settings: dict[tuple[str, str, bool], list[str]] = {}
    for relation, model, setting in cells:
        settings.setdefault((relation, model, SETTINGS[setting].asks_chat), []).append(setting)
    models: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (relation, model, _), of_model in settings.items():
        models.setdefault((relation, tuple(of_model)), []).append(model)
    relations: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (relation, of_models), names in models.items():
        relations.setdefault((tuple(names), of_models), []).append(relation)
    for (names, of_models), of_relations in relations.items():
        yield of_relations, list(names), list(of_models)


def _round(
    round: Round, cells: Sequence[Cell], harvests: Sequence[Mapping[str, Any]], names: Mapping[int, str]
) -> dict[str, Any]:
    """Return the section of the round. Cells are listed only if their order or their samples differ."""
    spec = {name: value for name, value in round.spec.items() if name not in ("name", "source", "cells")}
    if spec.get("closes_when") == Round.ClosesWhen.DATE:  # in the past when the study runs
        del spec["closes_when"], spec["closes_at"]
    if instructions := instructions_by_relation(round):
        spec["relation_instructions"] = {names[pk]: text for pk, text in instructions.items() if pk in names}
    samples = [{name: cell[name] for name in SAMPLE if cell.get(name) is not None} for cell in round.spec["cells"]]
    order = [
        (relation, model, setting)
        for section in harvests
        for relation in section["relations"]
        for model in section.get("models") or section["chat_models"]
        for setting in section["settings"]
    ]
    if order == list(cells) and all(sample == samples[0] for sample in samples):
        return spec | samples[0]
    keys = ("relation", "model", "setting")
    listed = [dict(zip(keys, cell, strict=True)) | sample for cell, sample in zip(cells, samples, strict=True)]
    return spec | {"cells": listed}
