"""Addresses of rounds and judging."""

from django.urls import path

from annotation.services.rounds import pause_round, reopen_round
from annotation.views import joining, judging, rounds

app_name = "annotation"

urlpatterns = [
    path("rounds/", rounds.round_list, name="round_list"),
    path("rounds/new/", rounds.round_new, name="round_new"),
    path("rounds/<slug:name>/", rounds.round_detail, name="round"),
    path("rounds/<slug:name>/pause/", rounds.round_change, {"change": pause_round}, name="round_pause"),
    path("rounds/<slug:name>/reopen/", rounds.round_change, {"change": reopen_round}, name="round_reopen"),
    path("rounds/<slug:name>/close/", rounds.round_close, name="round_close"),
    path("rounds/<slug:name>/judgments.<slug:file_format>", rounds.round_export, name="round_export"),
    path("rounds/<slug:name>/judge/", judging.judge, name="judge"),
    path("join/<str:token>/", joining.join, name="join"),
]
