"""What a paper says of pay, by the ledger: of panels alone, never of a person."""

from __future__ import annotations

from collections.abc import Iterator

from annotation.models import Panel, Platform, Round
from annotation.recruiting.panels.money import money
from annotation.recruiting.pay.hourly import HourlyPay, hourly_pay
from annotation.recruiting.pay.ledger import panel_balance
from kgharvest.pages.number_format import counted


def pay_in_words(round: Round) -> str:
    """Return what the people of a round's panels got, in two sentences for each panel that paid; empty without any."""
    return " ".join(sentence for panel in round.panels.order_by("pk") for sentence in _sentences(panel))


def _sentences(panel: Panel) -> Iterator[str]:
    balance, pay = panel_balance(panel), hourly_pay(panel)
    total = max(balance.owed, balance.paid)
    if not total or _is_play_money(panel):
        return
    where = "by a link" if panel.platform == Platform.LINK else f"on {Platform(panel.platform).product_name}"
    yield (
        f"{counted(len(pay.works), 'person', 'people')} recruited {where} completed the work, at "
        f"{money(panel.reward, panel.currency)} for {counted(panel.statements_per_place, 'statement')} each; they and "
        f"those who left early got {money(total, panel.currency)} in all, bonuses included."
    )
    yield _hourly_sentence(panel, pay)


def _hourly_sentence(panel: Panel, pay: HourlyPay) -> str:
    if pay.median is None:
        return "Too few were timed for a median of hourly pay."
    floor = f"; the floor that was set is {money(panel.hourly_floor, panel.currency)}" if panel.hourly_floor else ""
    median = money(int(pay.median), panel.currency)
    return f"The median pay of {counted(pay.n, 'person', 'people')} was {median} an hour of active time{floor}."


def _is_play_money(panel: Panel) -> bool:
    """Return True for panels of Mechanical Turk's sandbox, which paid nobody."""
    return panel.is_sandbox and panel.platform == Platform.MTURK
