"""Widgets of forms and inputs that Django does not bring."""

from __future__ import annotations

from typing import Any

from django import forms


class DatalistInput(forms.TextInput):
    """A text input that suggests `options` and takes anything."""

    template_name = "kgharvest/_datalist_input.html"
    options: tuple[str, ...] = ()

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        listed = {**(attrs or {}), "list": f"{attrs['id']}_options"}
        return {**super().get_context(name, value, listed), "options": self.options}


def non_blank_lines(text: str) -> list[str]:
    """Return the lines that are not blank, without spaces around them."""
    return [line.strip() for line in text.splitlines() if line.strip()]
