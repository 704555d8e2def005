"""Endpoints of chat models: whose address may be asked, who gets a key, and the client that asks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from kgharvest.chat_models.spending import Pace
from kgharvest.engine.chat_completions import ChatClient, ChatFailed
from kgharvest.webhooks.addresses import resolve


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
