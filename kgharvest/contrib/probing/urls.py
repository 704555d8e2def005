"""URLs of probes."""

from django.urls import path

from kgharvest.api.views import routes
from kgharvest.contrib.probing.probes import api as probes_api
from kgharvest.contrib.probing.probes import views as probes_views
from kgharvest.jobs import ledger

app_name = "probing"


urlpatterns = [
    # probes
    path("reports/probes/", probes_views.ProbeList.as_view(), name="probe_list"),
    path("reports/probes/new/", probes_views.probe_new, name="probe_new"),
    path("reports/probes/<int:pk>/", probes_views.probe_detail, name="probe"),
    path("reports/probes/<int:pk>/cancel/", probes_views.probe_change, {"change": ledger.cancel}, name="probe_cancel"),
    path("reports/probes/<int:pk>/retry/", probes_views.probe_change, {"change": ledger.retry}, name="probe_retry"),
    path("reports/probes/<int:pk>/prompts/<int:relation_pk>/", probes_views.probed_relation, name="probed_relation"),
    path("reports/probes/<int:pk>/records.jsonl", probes_views.probe_lines, {"kind": "records"}, name="probe_records"),
    path("reports/probes/<int:pk>/prompts.jsonl", probes_views.probe_lines, {"kind": "prompts"}, name="probe_prompts"),
    path("reports/probes/<int:pk>/tables.tex", probes_views.probe_latex, name="probe_latex"),
    path("reports/probes/<int:pk>/tables/<slug:name>.csv", probes_views.probe_table, name="probe_table"),
    path(
        "reports/probes/<int:pk>/figures/<slug:name>.<slug:file_format>", probes_views.probe_figure, name="probe_figure"
    ),
    *routes("probes", probes_api.ProbeViewSet, "api_probe"),
]
