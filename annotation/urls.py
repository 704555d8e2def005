"""URLs of rounds and judging. Gold comes first: its pages stand where a round's name could."""

from django.urls import include, path

app_name = "annotation"

urlpatterns = [
    path("", include("annotation.gold.urls")),
    path("", include("annotation.rounds.urls")),
    path("", include("annotation.quality.urls")),
    path("", include("annotation.judging.urls")),
    path("", include("annotation.recruiting.urls")),
]
