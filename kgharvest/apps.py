"""Configuration of the app `kgharvest`."""

from django.apps import AppConfig


class KgharvestConfig(AppConfig):
    name = "kgharvest"

    def ready(self) -> None:
        from kgharvest.accounts.account_events import connect  # requires the models

        connect()
