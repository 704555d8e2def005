"""Display of domain errors, as a message on the next page or in a form."""

from collections.abc import Iterator
from contextlib import contextmanager

from django import forms
from django.contrib import messages
from django.http import HttpRequest

from kgharvest.engine.types import EngineError
from kgharvest.errors import DomainError, ImportRefused


def page_text(refusal: DomainError | EngineError) -> str:
    return getattr(refusal, "on_page", "") or str(refusal)


@contextmanager
def refusal_as_message(request: HttpRequest) -> Iterator[None]:
    """Suppress a DomainError in the block and show its message on the next page."""
    try:
        yield
    except DomainError as refusal:
        messages.error(request, page_text(refusal))


@contextmanager
def refusal_in_form(form: forms.BaseForm, field: str | None = None) -> Iterator[None]:
    """Suppress a DomainError or EngineError in the block and show its message at `field`, or above the form.

    If the block can raise ImportRefused, the template must include `kgharvest/relations/_import_refusal.html`.
    """
    try:
        yield
    except ImportRefused as refusal:
        form.import_refusal = refusal
    except (DomainError, EngineError) as refusal:
        form.add_error(field, page_text(refusal))
