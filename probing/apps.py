from django.apps import AppConfig


class ProbingConfig(AppConfig):
    name = "probing"
    label = "probing"
