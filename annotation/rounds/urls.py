"""URLs of rounds."""

from django.urls import path

from annotation.rounds import draft_views, views
from annotation.rounds.services import pause_round, reopen_round

urlpatterns = [
    path("rounds/", views.round_list, name="round_list"),
    path("rounds/new/", draft_views.round_new, name="round_new"),
    path("rounds/plan/", draft_views.round_plan, name="round_plan"),
    path("rounds/<slug:name>/", views.round_detail, name="round"),
    path("rounds/<slug:name>/edit/", draft_views.round_edit, name="round_edit"),
    path("rounds/<slug:name>/preview/", draft_views.round_preview, name="round_preview"),
    path(
        "rounds/<slug:name>/instructions/<int:pk>/",
        draft_views.relation_instructions,
        name="relation_instructions",
    ),
    path("rounds/<slug:name>/open/", draft_views.round_open, name="round_open"),
    path("rounds/<slug:name>/delete/", draft_views.round_delete, name="round_delete"),
    path("rounds/<slug:name>/clone/", draft_views.round_clone, name="round_clone"),
    path("rounds/<slug:name>/pause/", views.round_change, {"change": pause_round}, name="round_pause"),
    path("rounds/<slug:name>/reopen/", views.round_change, {"change": reopen_round}, name="round_reopen"),
    path("rounds/<slug:name>/close/", views.round_close, name="round_close"),
    path("rounds/<slug:name>/judgments.<slug:file_format>", views.round_export, name="round_export"),
    path("rounds/<slug:name>/progress.json", views.round_progress, name="round_progress"),
    path("rounds/<slug:name>/events/", views.round_events, name="round_events"),
    path("rounds/<slug:name>/events.jsonl", views.round_events_file, name="round_events_file"),
]
