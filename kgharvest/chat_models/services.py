"""Chat models of harvests: allowed endpoints and usage."""

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
    """Raise NoEndpoint, or BadAddress for one that `by` may not name."""
    if not (options.base_url or settings.CHAT_BASE_URL):
        raise DomainError(
            "NoEndpoint",
            "The address of the chat model is missing and KGHARVEST_CHAT_BASE_URL is not set; give the endpoint's "
            "address, such as http://127.0.0.1:8000/v1.",
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


# Endpoints


@dataclass(frozen=True)
class Endpoint:
    """Where one piece of work asks.

    who: begins sentences, as "The judge". own_url: that of the environment for such work, may be "". key_variable: of
    the environment, holds its key. base_url: as somebody named it, "" for `own_url`. is_owner: who named it owns the
    installation.
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
        """Whether any address may be asked and gets the key: the environment's, or one that an owner named."""
        return self.is_owner or self.base_url in ("", self.own_url)

    def check(self) -> None:
        """Raise BadAddress for an address inside the network that only who owns the installation may name."""
        if not self.is_trusted:
            with suppress(OSError):  # a name that is unknown now; the worker says so
                resolve(self.base_url)

    def client(self, model: str, timeout_s: float, advice: str, pace: Pace) -> ChatClient:
        """Raises BadAddress, ChatFailed."""
        return ChatClient(
            self.who,
            self.url,
            model,
            self.key_variable if self.is_trusted else "",
            timeout_s,
            advice=advice,
            before_request=pace.wait,
            sleep=pace.hold,
            connect_to="" if self.is_trusted else self._checked_address(),
        )

    def _checked_address(self) -> str:
        """Return the address that the host's name means now. Raises BadAddress, or ChatFailed if it is unknown."""
        try:
            return str(resolve(self.base_url).address)
        except OSError:
            raise ChatFailed(f"The host of {self.base_url} is not known here; check the address.") from None
