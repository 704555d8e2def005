"""A panel's life: drafted with sensible options, published, paused, resumed, stopped; each is asked of its platform.

The platform is asked outside of transactions. What it refuses did not happen here either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from annotation.models import Round
from kgharvest.access import Action, check_may
from kgharvest.contrib.recruiting.models import Panel
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.contrib.recruiting.panels.presets import usual_options
from kgharvest.contrib.recruiting.platforms import Can, Cost, check_not_closed, platform_of
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.pages.number_format import counted

Status = Panel.Status
EDITED_LATER = ("places", "hourly_floor")  # once people may have come
LONGEST_REASON = 500


def create_panel(round: Round, options: Mapping[str, Any], by=None) -> Panel:
    """Create a draft. Options that are missing get the defaults of the round and platform.

    Raises NotAllowed, BadPanel, PanelNameTaken, PlatformRefused.
    """
    check_may(by, Action.WORK, round.project)
    if round.status == Round.Status.DRAFT or round.source != Round.Source.PEOPLE:
        raise DomainError("BadPanel", f"Round {round.name} takes no people. Open the round first.")
    platform = options.get("platform", Panel._meta.get_field("platform").default)
    panel = Panel(round=round, created_by=by, **{**usual_options(round, platform), **options})
    check_options(panel)
    with transaction.atomic():
        _save(panel)
        record("panel.made", panel, by, round=round, panel=panel.name, places=panel.places)
    return panel


def edit_panel(panel: Panel, options: Mapping[str, Any], by=None) -> Panel:
    """Give a draft other options; of what has been published EDITED_LATER alone. Raises as create_panel does."""
    check_may(by, Action.WORK, panel.project)
    with transaction.atomic():
        panel = Panel.objects.select_for_update(of=("self",)).select_related("round__project").get(pk=panel.pk)
        changed = [name for name, value in options.items() if getattr(panel, name) != value]
        if panel.status != Status.DRAFT:
            has_study = Can.PUBLISH in platform_of(panel).can
            later = [name for name in EDITED_LATER if name != "places" or not has_study]
            if fixed := [name for name in changed if name not in later]:
                reason = f"{panel.name} is {panel.status}: {fixed[0]} cannot be changed any more"
                raise DomainError("WrongPanelStatus", f"{reason}; make another panel for that.")
        for name in changed:
            setattr(panel, name, options[name])
        check_options(panel)
        _save(panel, update_fields=changed)
        if changed:
            record("panel.changed", panel, by, round=panel.round, panel=panel.name)
    return panel


def _save(panel: Panel, **kwargs: Any) -> None:
    try:
        with transaction.atomic():
            panel.save(**kwargs)
    except IntegrityError:
        raise DomainError(
            "PanelNameTaken", f"{panel.round.name} has a panel {panel.name} already. Choose another name."
        ) from None


def check_options(panel: Panel) -> None:
    """Raise BadPanel for an invalid option or combination, PlatformRefused if the platform is closed."""
    check_not_closed(panel)
    try:
        panel.clean_fields(exclude=["round", "created_by"])
    except ValidationError as error:
        name, [reason, *_] = next(iter(error.message_dict.items()))
        raise DomainError("BadPanel", f"{name}: {reason}") from None
    for problem in platform_of(panel).option_problems():
        raise DomainError("BadPanel", problem)
    for is_wrong, sentence in RULES:
        if is_wrong(panel):
            raise DomainError("BadPanel", sentence)
    if panel.hourly_floor > _hourly_reward(panel):
        raise DomainError(
            "BadPanel",
            f"By the estimated minutes the reward is {_hourly_in_words(panel)}, below the lowest hourly pay of "
            f"{money(panel.hourly_floor, panel.currency)}; raise it, or ask for less work.",
        )


def _hourly_reward(panel: Panel) -> float:
    return panel.reward * 60 / panel.estimated_minutes


def _hourly_in_words(panel: Panel) -> str:
    return f"{money(int(_hourly_reward(panel)), panel.currency)} an hour"


RULES: Sequence[tuple[Callable[[Panel], bool], str]] = (
    (lambda panel: panel.name == "new", "name is “new”, which is the address of the form; choose another one."),
    (
        lambda panel: len({*_names(panel)}) < len(_names(panel)),
        "Two parameters have the same name; give each one of its own.",
    ),
    (
        lambda panel: (
            bool(panel.completion_code) and panel.completion_code in (panel.screen_out_code, panel.quota_full_code)
        ),
        "The completion code is another one's too, so nobody could tell them apart; give another.",
    ),
)


def _names(panel: Panel) -> list[str]:
    names = (panel.participant_parameter, panel.study_parameter, panel.session_parameter)
    return [name for name in names if name]


def delete_panel(panel: Panel, by=None) -> None:
    """Delete a draft. Raises NotAllowed, WrongPanelStatus."""
    check_may(by, Action.WORK, panel.project)
    with transaction.atomic():
        if not Panel.objects.filter(pk=panel.pk, status=Status.DRAFT).delete()[0]:
            raise DomainError("WrongPanelStatus", f"{panel.name} is not a draft. Stop it instead; its data stay.")
        record("panel.deleted", panel, by, round=panel.round, panel=panel.name)


def cost_in_words(panel: Panel) -> str:
    """Return in a sentence what publishing costs, as the platform says, or what we know of it."""
    try:
        cost = platform_of(panel).cost()
    except DomainError as reason:
        return f"What it costs is not known now: {reason}"
    return _sentence(cost, panel)


def _sentence(cost: Cost | None, panel: Panel) -> str:
    n_places = counted(panel.places, "place")
    places = f"{n_places} at {money(panel.reward, panel.currency)}"
    if cost is None and not panel.reward:
        return f"{n_places} without a reward; the platform says what else they cost."
    if cost is None:
        rewards = money(panel.places * panel.reward, panel.currency)
        turned_away = f", and {money(panel.screen_out_reward, panel.currency)} for each whom a check turns away"
        return (
            f"{places}, {_hourly_in_words(panel)} by the estimate, are {rewards} in rewards"
            f"{turned_away if panel.screen_out_reward else ''}; the platform says what its fee adds."
        )
    total, fee = money(cost.total, panel.currency), money(cost.fee, panel.currency)
    return f"{places} cost {total}: {money(cost.rewards, panel.currency)} in rewards and {fee} in fees."


def publish_panel(panel: Panel, by=None) -> None:
    """Let people in, here and at the platform.

    What was published here while nobody knows of a study at the platform is published again. Raises NotAllowed,
    WrongPanelStatus, BadPanel, and what the platform says.
    """
    check_may(by, Action.WORK, panel.project)
    _check_ready(panel)
    platform = platform_of(panel)
    before = [Status.DRAFT]
    if Can.PUBLISH in platform.can and not panel.external_id:
        before.append(Status.PUBLISHED)

    def publish() -> None:
        Panel.objects.filter(pk=panel.pk).update(external_id=platform.publish())

    _change(panel, before, Status.PUBLISHED, publish, by, places=panel.places)


def _check_ready(panel: Panel) -> None:
    check_not_closed(panel)
    round = panel.round
    if round.source != Round.Source.PEOPLE or not round.is_open:
        raise DomainError("BadPanel", f"The round {round.name} takes no people now; open it before its panel.")
    if not panel.completion_code and not panel.completion_url:
        raise DomainError("BadPanel", f"{panel.name} has neither a completion code nor a return address. Add one.")


def pause_panel(panel: Panel, reason: str = "", by=None) -> None:
    """Let nobody new in; who has a place goes on. Raises as publish_panel does."""
    check_may(by, Action.WORK, panel.project)
    reason = reason[:LONGEST_REASON] or "Somebody paused it."
    _change(panel, [Status.PUBLISHED], Status.PAUSED, platform_of(panel).pause, by, reason)


def resume_panel(panel: Panel, by=None) -> None:
    check_may(by, Action.WORK, panel.project)
    _check_ready(panel)
    _change(panel, [Status.PAUSED], Status.PUBLISHED, platform_of(panel).resume, by)


def stop_panel(panel: Panel, by=None) -> None:
    """End it: nobody new comes any more; who has a place goes on. Raises as publish_panel does."""
    check_may(by, Action.WORK, panel.project)
    before = [Status.PUBLISHED, Status.PAUSED]
    _change(panel, before, Status.STOPPED, platform_of(panel).stop, by, "Somebody stopped it.")


VERBS = {Status.PAUSED: "paused", Status.STOPPED: "stopped"}


def _change(
    panel: Panel, before: Sequence[str], to: Panel.Status, ask: Callable[[], Any], by, reason: str = "", **facts: Any
) -> None:
    """Move the panel, then ask the platform, and move it back where that refuses: people who come find a panel open."""
    was = Panel.objects.values_list("status", "ended_reason").get(pk=panel.pk)
    if was[0] not in before or not _move(panel, before, to, reason):
        raise DomainError("WrongPanelStatus", f"{panel.name} is {was[0]}. Reload its page.")
    try:
        ask()
    except DomainError:
        _move(panel, [to], *was)
        raise
    panel.refresh_from_db()
    verb = VERBS.get(to) or ("resumed" if was[0] == Status.PAUSED else "published")
    texts = {"reason": reason} if reason else None
    record(f"panel.{verb}", panel, by, round=panel.round, texts=texts, panel=panel.name, **facts)


def _move(panel: Panel, before: Sequence[str], to: str, reason: str) -> bool:
    return bool(Panel.objects.filter(pk=panel.pk, status__in=before).update(status=to, ended_reason=reason))
