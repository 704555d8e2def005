"""URLs of harvests."""

from django.urls import path

from kgharvest.harvests import api, views
from kgharvest.harvests.launches import cancel_launch, retry_cancelled, retry_failed
from kgharvest.jobs import ledger

CANCEL_LAUNCH = {"change": cancel_launch, "done": "cancelled"}
RETRY_FAILED = {"change": retry_failed, "done": "queued again"}
RETRY_CANCELLED = {"change": retry_cancelled, "done": "queued again"}

urlpatterns = [
    path("harvests/", views.harvest_list, name="harvest_list"),
    path("harvests/new/", views.launch_new, name="harvest_new"),
    path("harvests/launches/", views.launch_list, name="launch_list"),
    path("harvests/launches/<int:pk>/", views.launch_detail, name="launch_detail"),
    path("harvests/launches/<int:pk>/cancel/", views.launch_change, CANCEL_LAUNCH, name="launch_cancel"),
    path("harvests/launches/<int:pk>/retry-failed/", views.launch_change, RETRY_FAILED, name="launch_retry_failed"),
    path(
        "harvests/launches/<int:pk>/retry-cancelled/",
        views.launch_change,
        RETRY_CANCELLED,
        name="launch_retry_cancelled",
    ),
    path("harvests/<int:pk>/", views.harvest_detail, name="harvest_detail"),
    path("harvests/<int:pk>/cancel/", views.harvest_change, {"change": ledger.cancel}, name="harvest_cancel"),
    path("harvests/<int:pk>/retry/", views.harvest_change, {"change": ledger.retry}, name="harvest_retry"),
    path("harvests/<int:pk>/tuples.jsonl", views.harvest_export, {"file_format": "jsonl"}, name="harvest_jsonl"),
    path("harvests/<int:pk>/tuples.csv", views.harvest_export, {"file_format": "csv"}, name="harvest_csv"),
    path("harvests/<int:pk>/tuples.nt", views.harvest_export, {"file_format": "nt"}, name="harvest_nt"),
    path("harvests/<int:pk>/tuples.ttl", views.harvest_export, {"file_format": "ttl"}, name="harvest_ttl"),
    path("api/launches/<int:pk>/", api.LaunchDetail.as_view(), name="launch_api"),
    path("api/harvests/<int:pk>/", api.HarvestDetail.as_view(), name="harvest_api"),
]
