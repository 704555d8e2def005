"""Store studies, and find the relations, harvests, and cells that their documents describe."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from django.db import transaction
from django.utils import timezone

from annotation.judges.models import JudgeRun
from annotation.judges.specs import run_from_spec
from annotation.models import Round
from annotation.rounds.builder import population_of
from annotation.rounds.serializers import Cell, round_from_spec
from evaluation.models import Study
from evaluation.studies.schema import SAMPLE, HarvestSection, RoundSection, entry_of, harvest_sections, key_of
from evaluation.studies.sections import study_sections
from kgharvest.access import MAY, Action, check_may
from kgharvest.accounts.projects import create_project, project_for
from kgharvest.chat_models.options import options_from
from kgharvest.embedded_lm.world import load_world
from kgharvest.engine.types import ParaphraserSettings
from kgharvest.errors import DomainError, NotFound
from kgharvest.events.recording import record
from kgharvest.harvests.language_models import get_language_model, name_language_model
from kgharvest.harvests.launches import Plan, plan_launch
from kgharvest.harvests.runner import HarvestRequest, requests_for, unique_key_of
from kgharvest.models import HarvestJob, Job, Project, Relation, RelationSet
from kgharvest.names import alternatives
from kgharvest.relations.files import RelationFile
from kgharvest.relations.names import relations_of_set, resolve_relation
from kgharvest.relations.services import import_relation_file, load_shipped_sets

FROZEN = ("relations", "harvests", "round", "simulation")  # sections that cannot change once the round exists

Harvest = TypeVar("Harvest", HarvestJob, HarvestRequest)


class Change(NamedTuple):
    """A difference between the stored study and its file. old, new: None if missing."""

    path: tuple[str | int, ...]
    old: Any
    new: Any

    def __str__(self) -> str:
        old, new = self.old, self.new
        if isinstance(old, list) and isinstance(new, list):  # omits the items of both, which can be long
            old, new = [item for item in old if item not in new], [item for item in new if item not in old]
        return f"{key_of(self.path)}: {_shown(old)} -> {_shown(new)}"


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def project_of(document: Mapping[str, Any], by=None) -> Project:
    """Return the project of a new study, and create a named project that is missing.

    Raises NotAllowed, or ProjectNotNamed with the key to add.
    """
    name = document.get("project")
    if not name:
        slugs = list(Project.objects.with_role(by, MAY[Action.WORK]).values_list("slug", flat=True)[:10])
        if len(slugs) > 1:
            raise _not_named(f"Several projects exist: {', '.join(slugs)}.", slugs[0])
        return project_for(by)
    visible = Project.objects.visible_to(by)
    project = visible.filter(slug=name).first() or visible.filter(name=name).first() or create_project(name, by)
    check_may(by, Action.WORK, project)
    return project


def find_study(document: Mapping[str, Any], by=None) -> Study | None:
    """Return the stored study of the document, or None.

    Raises ProjectNotNamed if the document names no project and several projects have a study of this name.
    """
    name = document.get("project")
    studies = Study.objects.visible_to(by).filter(name=document["name"]).select_related("project", "round", "report")
    if name:
        return studies.filter(project__slug=name).first() or studies.filter(project__name=name).first()
    found = list(studies.order_by("pk")[:2])
    if len(found) > 1:
        first, second = (study.project.slug for study in found)
        raise _not_named(f"The projects {first} and {second} have a study {document['name']}.", first)
    return found[0] if found else None


def _not_named(reason: str, slug: str) -> DomainError:
    return DomainError("ProjectNotNamed", f'{reason} Add `project = "{slug}"` to the study file.')


@transaction.atomic
def store_study(document: dict[str, Any], by=None) -> Study:
    """Create the study, or replace its document. Raises NotAllowed, ProjectNotNamed, StudyFrozen."""
    existing = find_study(document, by)
    project = existing.project if existing else project_of(document, by)
    check_may(by, Action.WORK, project)
    study, is_new = Study.objects.get_or_create(
        project=project, name=document["name"], defaults={"document": document, "created_by": by}
    )
    if is_new:
        record("study.made", study, by, project.pk, study=study.name)
    elif study.document != document:
        study = locked(study, by)
        check_changes(study, document)
        changed = list(changes(study.document, document))
        keys = ", ".join(key_of(change.path) for change in changed)
        if _of_report(study.document) != _of_report(document):
            study.report = None  # the next step creates a new one
        _set_changed_limits(study, document)
        study.document = document
        if any(change.path[0] in ("relations", "harvests") for change in changed):
            study.harvest_keys = []  # until they are queued
        study.section_keys = {}  # until they are queued
        study.save(update_fields=["document", "harvest_keys", "section_keys", "report", "changed_at"])
        record("study.changed", study, by, project.pk, study=study.name, keys=keys)
    return study


def _of_report(document: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the parts of the document that determine the contents of the report."""
    options = {name: value for name, value in document.get("report", {}).items() if name != "outputs"}
    return options, _judges(document), document.get("published")


def _judges(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the options of each judge except its LIMITS, by name."""
    return {
        judge["name"]: {key: value for key, value in judge.items() if key not in JudgeRun.LIMITS}
        for judge in document.get("judges", [])
    }


def _set_changed_limits(study: Study, document: Mapping[str, Any]) -> None:
    """Give the judge runs the limits that the new document changes. Limits that were changed on pages are kept."""
    old = {judge["name"]: judge for judge in study.document.get("judges", [])}
    for judge in document.get("judges", []) if study.round else []:
        before = old.get(judge["name"], judge)
        if changed := [limit for limit in JudgeRun.LIMITS if before.get(limit) != judge.get(limit)]:
            wanted, _ = run_from_spec(judge)
            limits = {limit: getattr(wanted, limit) for limit in changed}
            study.round.judge_runs.filter(name=judge["name"]).update(**limits)


def locked(study: Study, by=None) -> Study:
    """Return the study, reloaded and locked until the end of the transaction. Raises NotAllowed."""
    check_may(by, Action.WORK, study.project)
    of_study = Study.objects.select_for_update(of=("self",)).select_related(
        "project", "relation_set", "round__project", "report"
    )
    return of_study.get(pk=study.pk)


def changes(old: Any, new: Any, path: tuple[str | int, ...] = ()) -> Iterator[Change]:
    """Yield the differences between two documents. Lists of different lengths are one difference."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from changes(old.get(key), new.get(key), (*path, key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for position, pair in enumerate(zip(old, new, strict=True)):
            yield from changes(*pair, (*path, position))
    elif old != new:
        yield Change(path, old, new)


def check_changes(study: Study, document: Mapping[str, Any]) -> None:
    """Raise StudyFrozen if the new document changes the drawn sample, or options of a judge run except its LIMITS."""
    if study.round is None:
        return
    old, new = _judges(study.document), _judges(document)
    refusals = [
        (str(change), f"round {study.round.name} exists, and its harvests, sample, and options are frozen")
        for change in changes(study.document, document)
        if change.path[0] in FROZEN
    ]
    refusals += [
        (
            f"judge {name}",
            f"its run exists. Only {' and '.join(JudgeRun.LIMITS)} can change. Add a judge with another name",
        )
        for name in study.round.judge_runs.values_list("name", flat=True)
        if name in old and name in new and old[name] != new[name]
    ]
    for key, section in study_sections().items():
        if study.document.get(key) != document.get(key):
            section.check_change(study, document)
    for change, reason in refusals:
        raise DomainError(
            "StudyFrozen", f"Cannot change {change}: {reason}. Undo the change, or give the file another study name."
        )


# Relations


def import_study_relations(study: Study, by=None) -> None:
    """Import the relations written in the file, and load built-in sets that are missing.

    Raises ImportRefused, NotAllowed, or SetNameTaken.
    """
    sections = study.document["relations"]
    names = {section["set"] for section in sections if "set" in section}
    if names - set(RelationSet.objects.filter(name__in=names).values_list("name", flat=True)):
        load_shipped_sets()
        existing = list(RelationSet.objects.visible_to(by).order_by("name").values_list("name", flat=True))
        if unknown := sorted(names - {*existing}):
            advice = alternatives(unknown[0], existing)
            raise DomainError("BadStudy", f"There is no relation set {unknown[0]!r:.80}; {advice}.")
    written = [section for section in sections if "name" in section]
    entries = [entry_of(relation, f"relation {relation['name']!r}") for relation in written]
    if entries and any(_is_changed(study, entry) for entry in entries):
        file = RelationFile(f"study {study.name}", study.name, study.document.get("description", ""), entries)
        name = study.relation_set.name if study.relation_set else _free_set_name(study)
        study.relation_set = import_relation_file(file, name, by=by, project=study.project)
        study.save(update_fields=["relation_set", "changed_at"])


def _free_set_name(study: Study) -> str:
    """Return the name of the study for a new set, or PROJECT-NAME if it is taken. Raises SetNameTaken."""
    names = (study.name, f"{study.project.slug}-{study.name}")
    taken = set(RelationSet.objects.filter(name__in=names).values_list("name", flat=True))
    if free := next((name for name in names if name not in taken), None):
        return free
    raise DomainError(
        "SetNameTaken",
        f"name: the relation sets {names[0]} and {names[1]} exist, and the study must not change them. Give the study "
        "another name.",
    )


def _is_changed(study: Study, entry: Any) -> bool:
    relation = Relation.objects.filter(relation_set=study.relation_set_id, name=entry.name).first()
    return relation is None or any(getattr(relation, name) != value for name, value in entry.columns().items())


def relations_of_section(section: Mapping[str, Any]) -> list[Relation]:
    """Return the relations of a section with a set. Raises UnresolvedName."""
    if names := section.get("names"):
        return [resolve_relation(name, section["set"]) for name in names]
    return relations_of_set(section["set"])


def relations_of(study: Study) -> list[Relation]:
    """Return the relations in the order of the file. Raises NotFound, or BadStudy for a name that occurs twice."""
    relations: list[Relation] = []
    for section in study.document["relations"]:
        if "name" in section:
            if study.relation_set is None:
                raise NotFound(f"The relations of study {study.name} are not imported yet. Start it with study run.")
            relations.append(resolve_relation(section["name"], study.relation_set.name))
        else:
            relations += relations_of_section(section)
    names = [relation.name for relation in relations]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise DomainError("BadStudy", f"The study has two relations {repeated}. Remove one of them, or rename it.")
    return relations


# Harvests


def requests_of(study: Study) -> list[HarvestRequest]:
    """Return the harvests of the study in the order of the file. Raises NotFound, BadStudy, NoChatModel, ..."""
    relations = {relation.name: relation for relation in relations_of(study)}
    requests: dict[str, HarvestRequest] = {}
    for position, section in enumerate(harvest_sections(study.document)):
        if unknown := [name for name in section["relations"] if name not in relations]:
            raise DomainError(
                "BadStudy",
                f"harvests[{position}].relations: the study has no relation {unknown[0]!r}. Add it to relations.",
            )
        chat = options_from(section.get("chat", {}))
        for request in requests_for(
            [relations[name] for name in section["relations"] or relations],
            [get_language_model(name) for name in dict.fromkeys(section["models"])],
            list(dict.fromkeys(section["settings"])),
            [name_language_model(name) for name in dict.fromkeys(section["chat_models"])],
            params=HarvestSection().params(section),
            prompts=tuple(section["prompts"]),
            paraphraser=ParaphraserSettings(**section.get("paraphraser", {})),
            device=section["device"],
            dtype=section["dtype"],
            chat=chat,
        ):
            requests.setdefault(unique_key_of(request), request)
    return list(requests.values())


def plan_of(study: Study, by=None) -> Plan:
    """Return the plan of the missing harvests. Its skipped cells are finished or under way. Raises as requests_of."""
    return plan_launch(requests_of(study), timezone.now(), by=by, project=study.project)


def jobs_of(study: Study) -> list[HarvestJob]:
    """Return the harvests from which the round was drawn, otherwise the job of each queued harvest, in order."""
    return (study.round and sampled_jobs(study.round)) or queued_jobs(study)


def queued_jobs(study: Study) -> list[HarvestJob]:
    """Return the job of each queued harvest, in order: its newest finished one, or its newest one."""
    jobs = HarvestJob.objects.with_cell().filter(project=study.project_id, unique_key__in=study.harvest_keys)
    succeeded_last = sorted(jobs, key=lambda job: (job.status == Job.Status.SUCCEEDED, job.pk))
    job_of = {job.unique_key: job for job in succeeded_last}
    return [job_of[key] for key in study.harvest_keys if key in job_of]


def sampled_jobs(round: Round) -> list[HarvestJob]:
    """Return the harvests from which the round was drawn, in the order of its cells."""
    ids = list(dict.fromkeys(round.strata.order_by("pk").values_list("job", flat=True)))
    jobs = HarvestJob.objects.with_cell().select_related("relation__relation_set").in_bulk(ids)
    return [jobs[pk] for pk in ids if pk in jobs]


# The round


def round_spec(study: Study, jobs: Sequence[HarvestJob]) -> dict[str, Any]:
    """Return the description of the study's round for open_round. jobs: its finished harvests.

    Raises BadStudy for a cell without exactly one harvest.
    """
    section = dict(study.document["round"])
    cells = section.pop("cells", None)
    harvests = sampled_harvests(study, jobs)
    sample = {name: section.pop(name) for name in SAMPLE if name in section}
    source = {"source": "simulated"} if "simulation" in study.document else {}
    spec = {"name": study.name, **section, **source}
    samples = [sample | cell for cell in cells] if cells else [sample] * len(harvests)
    sampled = list(zip(harvests, samples, strict=True))
    spec["cells"] = [
        {"job": job.pk, "n": None} | {name: cell[name] for name in SAMPLE if name in cell} for job, cell in sampled
    ]
    if "relation_instructions" in spec:
        paths = {relation.name: relation.path for relation in relations_of(study)}
        texts = spec["relation_instructions"].items()
        spec["relation_instructions"] = {paths.get(name, name): text for name, text in texts}
    draft = round_from_spec(spec)
    for cell, (job, _) in zip(spec["cells"], sampled, strict=True):
        if cell["n"] is not None:
            n_tuples = population_of(draft, Cell(cut=cell.get("cut", "")), job).count()
            cell["n"] = min(cell["n"], n_tuples) or cell["n"]
    return spec


def sampled_harvests(study: Study, harvests: Sequence[Harvest]) -> list[Harvest]:
    """Return the harvest of each cell of the round. harvests: all of the study. Raises BadStudy."""
    cells = study.document["round"].get("cells")
    if cells is None:
        return list(harvests)
    return [_of_cell(cell, f"round.cells[{position}]", harvests) for position, cell in enumerate(cells)]


def _of_cell(cell: Mapping[str, Any], path: str, harvests: Sequence[Harvest]) -> Harvest:
    fitting = [
        harvest
        for harvest in harvests
        if (harvest.relation.name, harvest.setting) == (cell["relation"], cell["setting"])
        and cell["model"]
        in (harvest.language_model.name, str(harvest.language_model), harvest.language_model.short_name)
    ]
    if len(fitting) != 1:
        name = " × ".join((cell["relation"], cell["model"], cell["setting"]))
        raise DomainError("BadStudy", f"{path}: the study has {len(fitting)} harvests of {name}. Name one of them.")
    return fitting[0]


def check_round(study: Study, requests: Sequence[HarvestRequest]) -> None:
    """Raise NameTaken or BadStudy if the round of these harvests cannot be opened. Nothing if it is open or none."""
    if "round" not in study.document or (study.round and study.round.status != Round.Status.DRAFT):
        return
    section = study.document["round"]
    name = section.get("name", study.name)
    if study.project.rounds.filter(name=name).exclude(study=study).exists():
        raise DomainError(
            "NameTaken", f"round.name: a round named {name} already exists in {study.project}. Choose another name."
        )
    sampled_harvests(study, requests)
    known = {relation for request in requests for relation in (request.relation.name, request.relation.path)}
    if unknown := [relation for relation in section.get("relation_instructions", {}) if relation not in known]:
        raise DomainError(
            "BadStudy",
            f"round.relation_instructions: no relation {unknown[0]} is harvested. Remove it, or add it to harvests.",
        )
    options = RoundSection(data=section)
    options.is_valid(raise_exception=True)
    closes_at = options.validated_data.get("closes_at")
    if closes_at and closes_at <= timezone.now():
        raise DomainError("BadStudy", f"round.closes_at: {closes_at:%Y-%m-%d %H:%M} is in the past. Change it.")


def check_simulation(study: Study) -> None:
    """Raise BadStudy if simulated annotators know no facts of a relation."""
    if "simulation" in study.document:
        known = {relation.name for relation in load_world()}
        if unknown := [relation.name for relation in relations_of(study) if relation.name not in known]:
            raise DomainError(
                "BadStudy",
                f"simulation: simulated annotators know no facts of {unknown[0]}. Use relations of the set demo, or "
                "remove the table simulation, so that people judge.",
            )
