"""Chat model endpoints: permitted addresses, clients, and usage."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import Count, Sum

from kgharvest.access import owns_installation
from kgharvest.chat_models.options import ChatOptions, from_json
from kgharvest.chat_models.spending import Pace
from kgharvest.engine.chat_completions import ChatClient, ChatFailed
from kgharvest.errors import DomainError
from kgharvest.harvests.models import HarvestJob
from kgharvest.webhooks.addresses import resolve

API_KEY_VARIABLE = "KGHARVEST_CHAT_API_KEY"


def check_endpoint(options: ChatOptions, by: Any) -> None:
    """Raise NoEndpoint if no endpoint is configured, or BadAddress if `by` may not use the address."""
    if not (options.base_url or settings.CHAT_BASE_URL):
        raise DomainError(
            "NoEndpoint",
            "No chat model endpoint is configured. Enter its URL, for example http://127.0.0.1:8000/v1, or set "
            "KGHARVEST_CHAT_BASE_URL.",
        )
    endpoint_of(options, owns_installation(by)).check()


def endpoint_of(options: ChatOptions, is_owner: bool) -> Endpoint:
    return Endpoint("The chat model", settings.CHAT_BASE_URL, API_KEY_VARIABLE, options.base_url, is_owner)


def usage_of(job: HarvestJob) -> dict[str, Any]:
    """Return the number of responses of a harvest, their tokens, and their cost in the currency of the prices."""
    return job.chat_answers.order_by().aggregate(
        n_answers=Count("pk"),
        n_prompt_tokens=Sum("n_prompt_tokens", default=0),
        n_completion_tokens=Sum("n_completion_tokens", default=0),
        cost=Sum("cost", default=0),
    )


def summary_of(job: HarvestJob) -> dict[str, Any]:
    """Return the summary of the chat model's usage. If the harvest is still running, it covers the usage so far."""
    usage = usage_of(job)
    reported = job.chat_answers.order_by("-position").values_list("model_reported", flat=True).first()
    options = from_json(job.payload["chat"])
    return {**usage, "cost": f"{usage['cost']:.4f}", "model_reported": reported or "", "scorer": options.scorer or None}


@dataclass(frozen=True)
class Endpoint:
    """Endpoint for one task.

    who: subject of error messages, such as "The judge". own_url: URL from the environment, possibly empty.
    key_variable: environment variable with the API key. base_url: URL requested by a user; empty to use `own_url`.
    is_owner: True if this user owns the installation.
    """

    who: str
    own_url: str
    key_variable: str
    base_url: str
    is_owner: bool

    @property
    def url(self) -> str:
        return self.base_url or self.own_url

    @property
    def is_trusted(self) -> bool:
        """True if the environment or an owner set the address.

        A trusted address is unrestricted and receives the API key.
        """
        return self.is_owner or self.base_url in ("", self.own_url)

    def check(self) -> None:
        """Raise BadAddress if the address is in the internal network and the user is not an owner."""
        if not self.is_trusted:
            with suppress(OSError):  # unknown host; the worker will report the error
                resolve(self.base_url)

    def client(self, model: str, timeout_s: float, advice: str, pace: Pace) -> ChatClient:
        """Return a client for the endpoint. Raises BadAddress, or ChatFailed if the host is unknown."""
        try:
            address = "" if self.is_trusted else str(resolve(self.base_url).address)
        except OSError:
            raise ChatFailed(f"Unknown host in {self.base_url}. Check the address.") from None
        return ChatClient(
            self.who,
            self.url,
            model,
            self.key_variable if self.is_trusted else "",
            timeout_s,
            advice=advice,
            before_request=pace.wait,
            sleep=pace.hold,
            connect_to=address,
        )
