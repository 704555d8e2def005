"""Chat models that harvests ask: where they may be asked, what they used."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.models import Count, Sum

from kgharvest.access import owns_installation
from kgharvest.chat_models.endpoints import Endpoint
from kgharvest.chat_models.options import ChatOptions, from_json
from kgharvest.errors import DomainError
from kgharvest.harvests.models import HarvestJob

API_KEY_VARIABLE = "KGHARVEST_CHAT_API_KEY"


class NoEndpoint(DomainError):
    """A harvest from a chat model of which nobody said where it is."""


def check_endpoint(options: ChatOptions, by: Any) -> None:
    """Raise NoEndpoint, or BadAddress for one that `by` may not name."""
    if not (options.base_url or settings.CHAT_BASE_URL):
        raise NoEndpoint(
            "The address of the chat model is missing and KGHARVEST_CHAT_BASE_URL is not set; give the endpoint's "
            "address, such as http://127.0.0.1:8000/v1."
        )
    endpoint_of(options, owns_installation(by)).check()


def endpoint_of(options: ChatOptions, is_owner: bool) -> Endpoint:
    return Endpoint("The chat model", settings.CHAT_BASE_URL, API_KEY_VARIABLE, options.base_url, is_owner)


def usage_of(job: HarvestJob) -> dict[str, Any]:
    """Return how many answers a harvest has, their tokens, and their cost in the currency of its prices."""
    return job.chat_answers.order_by().aggregate(
        n_answers=Count("pk"),
        n_prompt_tokens=Sum("n_prompt_tokens", default=0),
        n_completion_tokens=Sum("n_completion_tokens", default=0),
        cost=Sum("cost", default=0),
    )


def summary_of(job: HarvestJob) -> dict[str, Any]:
    """Return what a harvest says of its chat model, so far or in the end."""
    used = usage_of(job)
    reported = job.chat_answers.order_by("-position").values_list("model_reported", flat=True).first()
    options = from_json(job.payload["chat"])
    return {**used, "cost": f"{used['cost']:.4f}", "model_reported": reported or "", "scorer": options.scorer or None}
