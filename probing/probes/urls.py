"""URLs of probes."""

from django.urls import path

from kgharvest.jobs import ledger
from probing.probes import views
from probing.probes.api import ProbeDetail

urlpatterns = [
    path("reports/probes/", views.probe_list, name="probe_list"),
    path("reports/probes/new/", views.probe_new, name="probe_new"),
    path("reports/probes/<int:pk>/", views.probe_detail, name="probe"),
    path("reports/probes/<int:pk>/cancel/", views.probe_change, {"change": ledger.cancel}, name="probe_cancel"),
    path("reports/probes/<int:pk>/retry/", views.probe_change, {"change": ledger.retry}, name="probe_retry"),
    path("reports/probes/<int:pk>/prompts/<int:relation_pk>/", views.probed_relation, name="probed_relation"),
    path("reports/probes/<int:pk>/records.jsonl", views.probe_lines, {"kind": "records"}, name="probe_records"),
    path("reports/probes/<int:pk>/prompts.jsonl", views.probe_lines, {"kind": "prompts"}, name="probe_prompts"),
    path("reports/probes/<int:pk>/tables.tex", views.probe_latex, name="probe_latex"),
    path("reports/probes/<int:pk>/tables/<slug:name>.csv", views.probe_table, name="probe_table"),
    path("reports/probes/<int:pk>/figures/<slug:name>.<slug:file_format>", views.probe_figure, name="probe_figure"),
    path("api/probes/<int:pk>/", ProbeDetail.as_view(), name="probe_api"),
]
