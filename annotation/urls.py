"""Addresses of rounds and judging."""

from django.urls import path

from annotation import views
from annotation.services import rounds

app_name = "annotation"

urlpatterns = [
    path("rounds/", views.round_list, name="round_list"),
    path("rounds/new/", views.round_new, name="round_new"),
    path("rounds/<slug:name>/", views.round_detail, name="round"),
    path("rounds/<slug:name>/pause/", views.round_change, {"change": rounds.pause_round}, name="round_pause"),
    path("rounds/<slug:name>/reopen/", views.round_change, {"change": rounds.reopen_round}, name="round_reopen"),
    path("rounds/<slug:name>/close/", views.round_close, name="round_close"),
    path("rounds/<slug:name>/judgments.<slug:file_format>", views.round_export, name="round_export"),
    path("rounds/<slug:name>/judge/", views.judge, name="judge"),
    path("join/<str:token>/", views.join, name="join"),
]
