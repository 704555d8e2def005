"""URLs of probes."""

from django.urls import include, path

app_name = "probing"

urlpatterns = [
    path("", include("probing.probes.urls")),
]
