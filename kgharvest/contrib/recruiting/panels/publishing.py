"""Panel life cycle: create, edit, publish, pause, resume, and stop panels, here and on the platform.

The platform is called outside transactions. If the platform refuses a change, the panel's previous status is restored.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from annotation.models import Round
from kgharvest.access import Action, check_may
from kgharvest.contrib.recruiting.models import Panel
from kgharvest.contrib.recruiting.panels.links import parameters
from kgharvest.contrib.recruiting.panels.money import money
from kgharvest.contrib.recruiting.panels.presets import default_options
from kgharvest.contrib.recruiting.platforms import check_not_closed, platform_of
from kgharvest.errors import DomainError
from kgharvest.events.recording import record
from kgharvest.pages.number_format import counted

Status = Panel.Status
EDITED_LATER = ("places", "hourly_floor")  # options that can change after publication
LONGEST_REASON = 500  # maximum number of characters


def create_panel(round: Round, options: Mapping[str, Any], by=None) -> Panel:
    """Create a draft. Missing options get the defaults for the round and platform.

    Raises NotAllowed, BadPanel, PanelNameTaken, or PlatformRefused.
    """
    check_may(by, Action.WORK, round.project)
    if round.status == Round.Status.DRAFT or round.source != Round.Source.PEOPLE:
        raise DomainError("BadPanel", f"Round {round.name} does not accept annotators. Open the round first.")
    platform = options.get("platform", Panel._meta.get_field("platform").default)
    panel = Panel(round=round, created_by=by, **{**default_options(round, platform), **options})
    check_options(panel)
    with transaction.atomic():
        _save(panel)
        record("panel.made", panel, by, round=round, panel=panel.name, places=panel.places)
    return panel


def edit_panel(panel: Panel, options: Mapping[str, Any], by=None) -> Panel:
    """Change options. After publication, only the options in EDITED_LATER can change.

    Raises the same errors as create_panel.
    """
    check_may(by, Action.WORK, panel.project)
    with transaction.atomic():
        panel = Panel.objects.select_for_update(of=("self",)).select_related("round__project").get(pk=panel.pk)
        changed = [name for name, value in options.items() if getattr(panel, name) != value]
        if panel.status != Status.DRAFT:
            for name in changed:
                if name not in EDITED_LATER or (name == "places" and platform_of(panel).has_api):
                    reason = f"Cannot change {name}: panel {panel.name} is {panel.status}. Create another panel."
                    raise DomainError("WrongPanelStatus", reason)
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
        reason = f"Round {panel.round.name} already has a panel {panel.name}. Enter another name."
        raise DomainError("PanelNameTaken", reason) from None


def check_options(panel: Panel) -> None:
    """Raise BadPanel for invalid options or combinations, and PlatformRefused if the platform is closed."""
    check_not_closed(panel)
    try:
        panel.clean_fields(exclude=["round", "created_by"])
    except ValidationError as error:
        name, [reason, *_] = next(iter(error.message_dict.items()))
        raise DomainError("BadPanel", f"{name}: {reason}") from None
    problems = [*platform_of(panel).option_problems()]
    if panel.name == "new":
        problems.append("name cannot be “new”, which is the URL of the form. Enter another name.")
    names = [name for name in parameters(panel) if name]
    if len(set(names)) < len(names):
        problems.append("Two link parameters have the same name. Use a different name for each.")
    if panel.completion_code and panel.completion_code in (panel.screen_out_code, panel.quota_full_code):
        problems.append("The completion code equals another code of the panel. Enter a different code.")
    if panel.hourly_floor > panel.reward * 60 / panel.estimated_minutes:
        problems.append(
            f"The reward is {money(panel.hourly_reward, panel.currency)} per hour by the estimated minutes. This is "
            f"below the minimum hourly rate of {money(panel.hourly_floor, panel.currency)}. Increase the reward, or "
            "reduce the statements and minutes."
        )
    if problems:
        raise DomainError("BadPanel", problems[0])


def delete_panel(panel: Panel, by=None) -> None:
    """Delete a draft. Raises NotAllowed or WrongPanelStatus."""
    check_may(by, Action.WORK, panel.project)
    with transaction.atomic():
        if not Panel.objects.filter(pk=panel.pk, status=Status.DRAFT).delete()[0]:
            reason = f"Panel {panel.name} is not a draft. Stop it instead; its data is kept."
            raise DomainError("WrongPanelStatus", reason)
        record("panel.deleted", panel, by, round=panel.round, panel=panel.name)


def cost_in_words(panel: Panel) -> str:
    """Return a sentence on the cost of publishing.

    It states the platform's figure if available, otherwise the rewards.
    """
    try:
        cost = platform_of(panel).cost()
    except DomainError as reason:
        return f"The cost is currently unavailable: {reason}"
    n_places = counted(panel.places, "place")
    places = f"{n_places} at {money(panel.reward, panel.currency)}"
    rewards = money(panel.places * panel.reward, panel.currency)
    if cost is not None:
        fee = money(cost - panel.places * panel.reward, panel.currency)
        return f"{places} cost {money(cost, panel.currency)}: {rewards} in rewards and {fee} in fees."
    if not panel.reward:
        return f"{n_places} without a reward. The platform states its own fees."
    screen_outs = f", plus {money(panel.screen_out_reward, panel.currency)} per screen-out"
    return (
        f"{places} ({money(panel.hourly_reward, panel.currency)} per estimated hour) cost {rewards} in rewards"
        f"{screen_outs if panel.screen_out_reward else ''}. The platform charges an additional fee."
    )


def publish_panel(panel: Panel, by=None) -> None:
    """Open the panel to participants, here and on the platform.

    Also retries a publication that was interrupted before the study's id was stored. Raises NotAllowed,
    WrongPanelStatus, BadPanel, and the platform's errors.
    """
    check_may(by, Action.WORK, panel.project)
    _check_ready(panel)
    platform = platform_of(panel)
    before = [Status.DRAFT]
    if platform.has_api and not panel.external_id:
        before.append(Status.PUBLISHED)

    def publish() -> None:
        Panel.objects.filter(pk=panel.pk).update(external_id=platform.publish())

    _change(panel, before, Status.PUBLISHED, publish, by, places=panel.places)


def _check_ready(panel: Panel) -> None:
    check_not_closed(panel)
    round = panel.round
    if round.source != Round.Source.PEOPLE or not round.is_open:
        raise DomainError("BadPanel", f"Round {round.name} does not accept annotators. Open the round first.")
    if not panel.completion_code and not panel.completion_url:
        raise DomainError("BadPanel", f"Panel {panel.name} has neither a completion code nor a return URL. Add one.")


def pause_panel(panel: Panel, reason: str = "", by=None) -> None:
    """Stop admitting new participants. Current participants can continue. Raises the same errors as publish_panel."""
    check_may(by, Action.WORK, panel.project)
    reason = reason[:LONGEST_REASON] or "Paused by a researcher."
    _change(panel, [Status.PUBLISHED], Status.PAUSED, platform_of(panel).pause, by, reason)


def resume_panel(panel: Panel, by=None) -> None:
    check_may(by, Action.WORK, panel.project)
    _check_ready(panel)
    _change(panel, [Status.PAUSED], Status.PUBLISHED, platform_of(panel).resume, by)


def stop_panel(panel: Panel, by=None) -> None:
    """Close the panel permanently. Current participants can continue. Raises the same errors as publish_panel."""
    check_may(by, Action.WORK, panel.project)
    before = [Status.PUBLISHED, Status.PAUSED]
    _change(panel, before, Status.STOPPED, platform_of(panel).stop, by, "Stopped by a researcher.")


def _change(
    panel: Panel, before: Sequence[str], to: Status, operation: Callable[[], Any], by, reason: str = "", **facts: Any
) -> None:
    """Change the panel's status, then call the platform. If that call fails, restore the previous status.

    The status changes first, because the platform can send participants as soon as it is called.
    """
    status, previous_reason = Panel.objects.values_list("status", "ended_reason").get(pk=panel.pk)
    if status not in before or not _move(panel, before, to, reason):
        raise DomainError("WrongPanelStatus", f"Panel {panel.name} is {status}. Reload its page.")
    try:
        operation()
    except DomainError:
        _move(panel, [to], status, previous_reason)
        raise
    panel.refresh_from_db()
    verb = "resumed" if (status, to) == (Status.PAUSED, Status.PUBLISHED) else to.value
    texts = {"reason": reason} if reason else None
    record(f"panel.{verb}", panel, by, round=panel.round, texts=texts, panel=panel.name, **facts)


def _move(panel: Panel, before: Sequence[str], to: str, reason: str) -> bool:
    return bool(Panel.objects.filter(pk=panel.pk, status__in=before).update(status=to, ended_reason=reason))
