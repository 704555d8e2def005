"""Files of studies and rounds to download: they reproduce harvests and sample in another project or installation."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, pairwise
from typing import Any, NamedTuple

from annotation.judges.models import JudgeKind
from annotation.judges.specs import spec_of
from annotation.models import JudgmentTask, Round
from annotation.rounds.builder import instructions_by_relation
from annotation.rounds.instructions import freeze_statement
from evaluation.models import Study
from evaluation.studies.files import relation_section, relations_of_file
from evaluation.studies.schema import SAMPLE, HarvestSection
from evaluation.studies.scores import renamed_relations
from evaluation.studies.sections import sections_of, study_sections
from evaluation.studies.services import queued_jobs, relations_of_section, sampled_jobs
from kgharvest.chat_models.options import ChatOptions, to_json
from kgharvest.engine.settings import SETTINGS
from kgharvest.engine.types import HarvestParams, ParaphraserSettings
from kgharvest.errors import DomainError
from kgharvest.models import HarvestJob, Relation
from kgharvest.names import UnresolvedName
from kgharvest.packaged_lms import is_on_hub
from kgharvest.relations.files import EXPORTED_COLUMNS
from kgharvest.relations.services import SHIPPED

SEEDS = ("seed_tuples", "negative_seed_tuples")
TEXTS = ("initial_prompts", "prompts", *SEEDS)  # of a relation, as frozen in its harvests
Cell = tuple[str, str, str]  # relation, LM, and setting, as named in the file


class StudyFile(NamedTuple):
    """A study to download. notes: sentences about the parts that the file does not reproduce."""

    document: dict[str, Any]
    notes: Sequence[str] = ()


# Studies


def file_of_study(study: Study) -> StudyFile:
    """Return the document of a study for any installation: with the relations as its harvests used them.

    A built-in set stays a name if the harvests used the packaged texts. The notes name files that are not part of it.
    Raises NotReproducible.
    """
    jobs: defaultdict[int, list[HarvestJob]] = defaultdict(list)
    for job in {*(sampled_jobs(study.round) if study.round else ()), *queued_jobs(study)}:
        jobs[job.relation_id].append(job)
    relations, names = [], {}
    for section in study.document["relations"]:
        written = _written_relations(study, section, jobs) if "set" in section else [section]
        relations += written
        if written != [section]:
            names |= {f"{section['set']}/{relation['name']}": relation["name"] for relation in written}
        elif "set" in section:
            names |= {path: path for path in (f"{section['set']}/{name}" for name in section.get("names", []))}
    document = study.document | {"relations": relations}
    if study.round:
        document["round"] = _without_date(document["round"])
    if instructions := document.get("round", {}).get("relation_instructions"):
        renamed = {names.get(path, path): text for path, text in instructions.items()}
        document["round"] = document["round"] | {"relation_instructions": renamed}
    if "scores" in document:
        document["scores"] = [renamed_relations(section, names) for section in document["scores"]]
    others = _other_sections(study.round, {}) if study.round else {}
    notes: list[str] = []
    for section in sections_of(document):
        document[section.key], of_section = section.without_files(document[section.key])
        notes += of_section
    return StudyFile(others | document, notes)


def _written_relations(
    study: Study, section: dict[str, Any], jobs: Mapping[int, Sequence[HarvestJob]]
) -> list[dict[str, Any]]:
    """Return the relations of a set as harvested, or `[section]` if any installation has them."""
    try:
        relations = relations_of_section(section)
    except UnresolvedName:  # a built-in set that is not loaded yet
        return [section]
    harvests_all = any(not harvests.get("relations") for harvests in study.document.get("harvests", []))
    if harvests_all and not section.get("names"):  # relations without a harvest were added later
        relations = [relation for relation in relations if relation.pk in jobs] or relations
    written = [
        _relation(relation, relation.name, _texts(jobs[relation.pk]) if relation.pk in jobs else {}, study.round)
        for relation in relations
    ]
    return [section] if _is_packaged(section, written) else written


def _is_packaged(section: Mapping[str, Any], written: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the section names a built-in set with exactly these relations and texts."""
    path = SHIPPED / f"{section['set']}.json"
    packaged = {relation["name"]: relation for relation in relations_of_file(path)} if path.exists() else {}
    has_all = bool(section.get("names")) or len(packaged) == len(written)
    return has_all and all(packaged.get(relation["name"]) == relation for relation in written)


# Rounds


def study_of_round(round: Round) -> StudyFile:
    """Return a study with the harvests, the sample, and the judges of an opened round.

    For a round that was made by a study, this is the file of the study. Raises NotReproducible.
    """
    if study := getattr(round, "study", None):
        return file_of_study(study)
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
    relations = {job.relation_id: job.relation for job in jobs}
    document = {
        "name": round.name,
        "description": f"Reproduces round {round.path}.",
        "relations": [_relation(relations[pk], name, texts[pk], round) for pk, name in names.items()],
        "harvests": harvests,
        "round": _round(round, [_cell(job, names) for job in jobs], harvests, names),
    }
    notes = []
    if round.source == Round.Source.SIMULATED:
        document["simulation"] = {"n_annotators": round.annotators.count()} if round.annotators.exists() else {}
        notes.append(
            "The seed of the simulated labels is not stored with the round, so this study gets other labels. If you "
            "know the seed, set simulation.seed."
        )
    if _lacks_judge(round):
        notes.append(
            f"The strata of round {round.path} are the labels of the judge {round.judge}, which were imported from a "
            "file or deleted. A study cannot import labels, so this study samples without these strata. To draw the "
            f"same sample, save a draft of the round with judge {round.judge}, import the labels with judge_tuples, "
            "and open the draft."
        )
    judges = round.judge_runs.exclude(judge_kind=JudgeKind.FILE).order_by("pk")
    document |= {"judges": [dict(spec_of(run)) for run in judges]} if judges else {}
    others = _other_sections(round, {str(job.language_model): _cell(job, names)[1] for job in jobs})
    return StudyFile(document | others, notes)


def _lacks_judge(round: Round) -> bool:
    """Return True if the strata of the round are labels of a judge that no study can run."""
    runs = round.judge_runs.exclude(judge_kind=JudgeKind.FILE)
    return bool(round.judge) and not runs.filter(name=round.judge).exists()


def _other_sections(round: Round, model_names: Mapping[str, str]) -> dict[str, Any]:
    """Return the registered sections that the round has, such as its preregistration."""
    sections = {key: section.exported(round, model_names) for key, section in study_sections().items()}
    return {key: section for key, section in sections.items() if section is not None}


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


def _texts(jobs: Sequence[HarvestJob]) -> dict[str, Any]:
    """Return the texts of the relation with which every harvest can be repeated. Raises NotReproducible."""
    relation = jobs[0].relation
    candidates = [{name: getattr(relation, name) for name in TEXTS}]
    candidates += [_texts_of(job) for job in jobs]
    for texts in candidates:
        if all(_prompts(job, texts) is not None for job in jobs):
            return texts
    raise DomainError(
        "NotReproducible", f"The relation {relation.path} was changed between its harvests. Harvest it again."
    )


def _prompts(job: HarvestJob, texts: Mapping[str, Any]) -> list[str] | None:
    """Return the prompts that replace those of the relation, empty for none; None if no prompts reproduce the job."""
    spec = _texts_of(job)
    if spec == texts:
        return []
    is_replaced = spec["initial_prompts"] == spec["prompts"] and all(spec[name] == texts[name] for name in SEEDS)
    return list(spec["prompts"]) if is_replaced else None


def _texts_of(job: HarvestJob) -> dict[str, Any]:
    return {name: job.payload["spec"].get(name, []) for name in TEXTS}


def _relation(relation: Relation, name: str, texts: Mapping[str, Any], round: Round | None) -> dict[str, Any]:
    columns = {column: getattr(relation, column) for column in EXPORTED_COLUMNS}
    return relation_section(columns | {"statement": _statement(relation, round)} | texts | {"name": name})


def _statement(relation: Relation, round: Round | None) -> str:
    """Return the statement with its slots as it was when the round was opened."""
    of_round = round.tasks.without_gold() if round else JudgmentTask.objects.none()
    for task in of_round.filter(knowledge_tuple__relation=relation).iterator(chunk_size=100):
        if freeze_statement(relation.statement, task.entities).text == task.statement:
            break
        if len(set(task.entities)) == len(task.entities):  # each span belongs to one slot
            slots = [task.entities.index(task.statement[start:end]) for start, end in task.spans]
            between = pairwise([0, *chain.from_iterable(task.spans), len(task.statement)])
            texts = [task.statement[start:end] for start, end in between][::2]
            return texts[0] + "".join(f"<ENT{slot}>{text}" for slot, text in zip(slots, texts[1:], strict=True))
    return relation.statement


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


def _without_date(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a round without its closing date, which is in the past when the study runs again."""
    has_date = options.get("closes_when") == Round.ClosesWhen.DATE
    return {name: value for name, value in options.items() if not (has_date and name in ("closes_when", "closes_at"))}


def _round(
    round: Round, cells: Sequence[Cell], harvests: Sequence[Mapping[str, Any]], names: Mapping[int, str]
) -> dict[str, Any]:
    """Return the section of the round. Cells are listed only if their order or their samples differ."""
    spec = _without_date({name: value for name, value in round.spec.items() if name not in ("name", "source", "cells")})
    if spec.pop("takes_guests", False):
        spec["who_can_join"] = Round.WhoCanJoin.LINK.value
    if instructions := instructions_by_relation(round):
        spec["relation_instructions"] = {names[pk]: text for pk, text in instructions.items() if pk in names}
    sample_keys = SAMPLE
    if _lacks_judge(round):
        del spec["judge"]
        sample_keys = tuple(name for name in SAMPLE if name != "allocation")  # of the judge's strata
    samples = [{name: cell[name] for name in sample_keys if cell.get(name) is not None} for cell in round.spec["cells"]]
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
