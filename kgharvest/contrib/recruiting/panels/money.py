"""Money as whole minor units of a currency: written for people, read from what they type."""

from __future__ import annotations

import re

from kgharvest.errors import DomainError

# Digits after the point by ISO 4217, where they are not two.
NO_DECIMALS = {
    "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF",
    "XPF",
}  # fmt: skip
THREE_DECIMALS = {"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"}
DECIMALS = dict.fromkeys(NO_DECIMALS, 0) | dict.fromkeys(THREE_DECIMALS, 3)
AMOUNT = re.compile(r"(?P<whole>[0-9]{1,9})(?:\.(?P<part>[0-9]{1,3}))?")


class BadMoney(DomainError):
    """What cannot be read as an amount of a currency."""


def decimals_of(currency: str) -> int:
    """Return how many digits of an amount stand after the point."""
    return DECIMALS.get(currency, 2)


def money(amount: int, currency: str) -> str:
    """Return an amount in minor units as people read it: "USD 12.34", "JPY 500", "EUR −1.50"."""
    return f"{currency} {'−' if amount < 0 else ''}{decimal_money(abs(amount), currency)}"


def decimal_money(amount: int, currency: str) -> str:
    """Return an amount in minor units as programs read it: "12.34", "-1.50"; exact to the last digit."""
    decimals = decimals_of(currency)
    whole, part = divmod(abs(amount), 10**decimals)
    return f"{'-' if amount < 0 else ''}{whole}" + (f".{part:0{decimals}d}" if decimals else "")


def parse_money(text: str, currency: str) -> int:
    """Return in minor units what somebody typed: "12.34", "12" or "USD 12.34". Raises BadMoney."""
    decimals = decimals_of(currency)
    match = AMOUNT.fullmatch(text.strip().removeprefix(currency).strip())
    part = (match["part"] or "") if match else ""
    if match is None or len(part) > decimals:
        example = money(1234 * 10**decimals // 100, currency).removeprefix(f"{currency} ")
        raise BadMoney(f"{text!r:.40} is no amount of {currency}; write it as {example}.")
    return int(match["whole"]) * 10**decimals + int(part.ljust(decimals, "0") or 0)
