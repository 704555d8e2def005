"""The section `preregistration` of study files: a plan that is frozen in the transaction that opens the round."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.utils import timezone
from rest_framework import serializers

from annotation.models import Round
from evaluation.models import Study
from evaluation.rendering.documents import lm_and_setting
from evaluation.studies.schema import harvest_sections, key_of
from evaluation.studies.sections import Fault, Stage, StudySection
from evaluation.studies.services import sampled_harvests
from kgharvest.audit.tables import canonical_json
from kgharvest.contrib.publishing.preregistration.plan import (
    SIDES,
    TEXTS,
    PlanSerializer,
    completed_plan,
    pairs_compared,
    whole_hypothesis,
)
from kgharvest.contrib.publishing.preregistration.services import freeze_preregistration, stored_parts
from kgharvest.errors import DomainError, NotFound
from kgharvest.harvests.language_models import get_language_model, name_language_model
from kgharvest.harvests.runner import HarvestRequest
from kgharvest.names import alternatives, short_name
from kgharvest.pages.number_format import counted
from kgharvest.statistics.paired_tests import CellKey

LISTS = ("hypotheses", "comparisons")


class PreregistrationSection(StudySection):
    key = "preregistration"
    needs_round = True

    def field(self) -> serializers.Field:
        return PlanSerializer(required=False)

    def faults(self, document: Mapping[str, Any]) -> Iterator[Fault]:
        harvests = harvest_sections(document)
        settings = sorted({name for section in harvests for name in section["settings"]})
        models = sorted({name for section in harvests for name in _models(section)})
        names = {_bare(name) for name in models}
        for path, side in _sides(document[self.key]):
            if side["setting"] not in settings:
                yield _fault((*path, "setting"), side["setting"], settings)
            if _bare(side["model"]) not in names:
                yield _fault((*path, "model"), side["model"], models)

    def check(self, study: Study, requests: Sequence[HarvestRequest]) -> None:
        _planned(study, requests)

    def plan_lines(self, study: Study, requests: Sequence[HarvestRequest]) -> Iterator[str]:
        plan = _planned(study, requests)
        n_hypotheses, n_comparisons = (len(plan[name]) for name in LISTS)
        yield (
            f"preregistration: {counted(n_hypotheses, 'hypothesis', 'hypotheses')} and "
            f"{counted(n_comparisons, 'planned comparison')}, frozen before the first judgment"
        )
        yield from (f"  hypothesis: {whole_hypothesis(hypothesis)}" for hypothesis in plan["hypotheses"])
        for comparison in plan["comparisons"]:
            yield f"  comparison: {' and '.join(lm_and_setting(comparison[side]) for side in SIDES)}"
        for name in TEXTS:
            yield f"  {str(PlanSerializer().fields[name].label).lower()}: {' '.join(plan[name].split())}"

    def check_change(self, study: Study, document: Mapping[str, Any]) -> None:
        """Raise StudyFrozen if the new section is not frozen and cannot be frozen any more."""
        versions = study.round.preregistrations
        if self.key not in document:
            if versions.exists():
                raise _frozen(study, "a preregistration cannot be deleted")
        elif not _is_open_to_plans(study.round) and not _is_frozen(_plan_of_round(study, document), versions.all()):
            raise _frozen(study, "a round can only be preregistered before its first judgment")

    def round_opened(self, study: Study, by: Any = None) -> None:
        """Freeze the plan, unless it is in force.

        After the first judgment, any frozen version of it is accepted, and its LMs can have been deleted.
        """
        versions = study.round.preregistrations.order_by("-version")
        is_open = _is_open_to_plans(study.round)
        try:
            plan = _plan_of_round(study, study.document)
        except NotFound:
            if is_open or not versions.exists():
                raise
            return
        if not _is_frozen(plan, versions[:1] if is_open else versions):
            freeze_preregistration(study.round, _sent(study.document), timezone.now(), by)

    def stages(self, study: Study) -> list[Stage]:
        last = study.round and study.round.preregistrations.defer("document").order_by("-version").first()
        if not last:
            return [Stage("Preregistration", "not started", "Frozen when the round opens", [])]
        text = f"Version {last.version}, frozen {last.frozen_at:%Y-%m-%d %H:%M}, SHA-256 {last.sha256[:16]}"
        return [Stage("Preregistration", "done", text, [("Preregistration", last.get_absolute_url())])]

    def exported(self, round: Round, model_names: Mapping[str, str]) -> dict[str, Any] | None:
        last = round.preregistrations.order_by("-version").first()
        if last is None:
            return None
        plan = last.document["plan"]
        return {**plan, **{name: [_written(entry, model_names) for entry in plan[name]] for name in LISTS}}


SECTION = PreregistrationSection()


def _models(harvests: Mapping[str, Any]) -> list[str]:
    return [*harvests["models"], *harvests["chat_models"]]


def _bare(name: str) -> str:
    """Return the short name of an LM without its revision."""
    return short_name(name).partition("@")[0]


def _sides(section: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Mapping[str, str]]]:
    for name in LISTS:
        for position, entry in enumerate(section.get(name, [])):
            yield from (((SECTION.key, name, position, side), entry[side]) for side in SIDES)


def _fault(path: tuple[str | int, ...], name: str, names: Sequence[str]) -> Fault:
    return Fault(path, f"{key_of(path)} is {name!r}, which no harvest of the study has; {alternatives(name, names)}")


def _frozen(study: Study, reason: str) -> DomainError:
    return DomainError(
        "StudyFrozen",
        f"Cannot change {SECTION.key}: {reason}. Undo the change, or give the file another study name than "
        f"{study.name}.",
    )


def _is_open_to_plans(round: Round) -> bool:
    return round.status != Round.Status.CLOSED and not round.is_judged


def _is_frozen(plan: Mapping[str, Any], versions: Any) -> bool:
    text = canonical_json(plan)
    return any(canonical_json(frozen.document["plan"]) == text for frozen in versions)


def _sent(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of a valid document with all defaults. LMs have the names of their harvests."""
    plan = PlanSerializer(data=document[SECTION.key])
    plan.is_valid(raise_exception=True)
    sections = harvest_sections(document)
    names = {name: str(get_language_model(name)) for section in sections for name in section["models"]}
    names |= {name: str(name_language_model(name)) for section in sections for name in section["chat_models"]}
    lists = {name: [_written(entry, names) for entry in plan.validated_data[name]] for name in LISTS}
    return {**plan.validated_data, **lists}


def _written(entry: Mapping[str, Any], model_names: Mapping[str, str]) -> dict[str, Any]:
    """Return a hypothesis or comparison with other names of its LMs."""
    models = {side: entry[side]["model"] for side in SIDES}
    return {**entry, **{side: entry[side] | {"model": model_names.get(models[side], models[side])} for side in SIDES}}


def _plan_of_round(study: Study, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of the document in its frozen form, for the opened round of the study. Raises BadPlan."""
    return completed_plan(_sent(document), pairs_compared(stored_parts(study.round).cells))


def _planned(study: Study, requests: Sequence[HarvestRequest]) -> dict[str, Any]:
    """Return the section in its frozen form, for the harvests from which the round is drawn. Raises BadPlan."""
    cells = [
        CellKey(harvest.relation.name, str(harvest.language_model), harvest.setting)
        for harvest in sampled_harvests(study, requests)
    ]
    try:
        return completed_plan(_sent(study.document), pairs_compared(cells))
    except DomainError as refusal:
        raise DomainError(refusal.code, f"{SECTION.key}.{refusal}") from None
