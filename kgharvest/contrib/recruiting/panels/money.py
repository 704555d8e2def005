"""Formatting and parsing of money, stored as integer minor units of a currency."""

import re

from kgharvest.errors import DomainError

# Currencies without exactly two decimal places (ISO 4217).
DECIMALS = dict.fromkeys(["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"], 3)
DECIMALS |= dict.fromkeys([
    "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF",
    "XPF",
], 0)  # fmt: skip
AMOUNT = re.compile(r"(?P<whole>[0-9]{1,9})(?:\.(?P<part>[0-9]{1,3}))?")


class BadMoney(DomainError):
    """The text is not an amount in this currency."""


def money(amount: int, currency: str) -> str:
    """Format an amount in minor units for people: "USD 12.34", "JPY 500", "EUR −1.50"."""
    return f"{currency} {'−' if amount < 0 else ''}{decimal_money(abs(amount), currency)}"


def decimal_money(amount: int, currency: str) -> str:
    """Format an amount in minor units for programs, exactly: "12.34", "-1.50"."""
    decimals = DECIMALS.get(currency, 2)
    whole, part = divmod(abs(amount), 10**decimals)
    return f"{'-' if amount < 0 else ''}{whole}" + (f".{part:0{decimals}d}" if decimals else "")


def parse_money(text: str, currency: str) -> int:
    """Parse "12.34", "12", or "USD 12.34" into minor units. Raises BadMoney."""
    decimals = DECIMALS.get(currency, 2)
    match = AMOUNT.fullmatch(text.strip().removeprefix(currency).strip())
    part = (match["part"] or "") if match else ""
    if match is None or len(part) > decimals:
        example = money(1234 * 10**decimals // 100, currency).removeprefix(f"{currency} ")
        raise BadMoney(f"Invalid amount in {currency}: {text!r:.40}. Use the format {example}.")
    return int(match["whole"]) * 10**decimals + int(part.ljust(decimals, "0") or 0)
