"""Template filters and tags: numbers, statements with slots, and entities."""

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from django import template
from django.urls import reverse
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from kgharvest.access import knows
from kgharvest.engine.prompts.template import SLOT, SPACE_BEFORE_END
from kgharvest.jobs import messages
from kgharvest.models import Job
from kgharvest.pages.number_format import (
    count,
    duration,
    hours,
    in_points,
    pace,
    percent,
    points,
    score,
    seconds,
    share,
)

register = template.Library()
for number_filter in (count, duration, hours, in_points, pace, percent, points, score, seconds, share):
    register.filter(number_filter.__name__, number_filter)
# Name of a relation or cell with the relation in words, such as "place for × embedded × multi"
register.filter("words", lambda name: name.replace("_", " ", name.partition(" × ")[0].count("_")))
register.simple_tag(messages.away_since, name="broker_away_since")


@register.filter
def named_for(person: Any, user: Any) -> str:
    """Return the name of a person who acted on shared data, if `user` may see the name (`kgharvest.access.knows`)."""
    if person is None:
        return "the operator"
    return person.get_username() if knows(user, person) else "a user outside your projects"


def _with_slots(text: str, show: Callable[[str], SafeString]) -> SafeString:
    pieces = [show(piece) if index % 2 else escape(piece) for index, piece in enumerate(SLOT.split(text))]
    return mark_safe("".join(pieces))  # noqa: S308  every piece is escaped


@register.filter
def status_name(status: str) -> str:
    return dict(Job.Status.choices).get(status, status).lower()


@register.filter
def slots(text: str) -> SafeString:
    """Highlight the slots of a prompt or statement."""
    return _with_slots(text, lambda slot: format_html('<code class="slot">&lt;ENT{}&gt;</code>', slot))


@register.filter
def filled(statement: str, entities: Sequence[str]) -> SafeString:
    """Return the statement with `entities` in its slots.

    Each entity is in a `bdi` element, which isolates its text direction.
    """
    text = SPACE_BEFORE_END.sub("", statement.strip())
    return _with_slots(text, lambda slot: format_html("<b><bdi>{}</bdi></b>", entities[int(slot)]))


@register.filter
def entities(names: Sequence[str]) -> SafeString:
    """Highlight the entities of a tuple."""
    return format_html(
        '<span class="entities">{}</span>', format_html_join("", "<b><bdi>{}</bdi></b>", ((name,) for name in names))
    )


@register.filter
def entity_url(name: str) -> str:
    return f"{reverse('kgharvest:entity')}?{urlencode({'name': name.casefold()})}"
