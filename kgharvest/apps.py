from django.apps import AppConfig


class KgharvestConfig(AppConfig):
    name = "kgharvest"
    label = "kgharvest"
    verbose_name = "Harvesting"
