"""URLs of probes and text tasks."""

from django.urls import path

from kgharvest.api.views import routes
from kgharvest.contrib.probing.models import Probe, TextTask
from kgharvest.contrib.probing.probes import api as probes_api
from kgharvest.contrib.probing.probes import views as probes_views
from kgharvest.contrib.probing.text_tasks import api as text_api
from kgharvest.contrib.probing.text_tasks import views as text_views
from kgharvest.jobs import ledger

app_name = "probing"


urlpatterns = [
    # probes
    path("reports/probes/", probes_views.ProbeList.as_view(), name="probe_list"),
    path("reports/probes/new/", probes_views.probe_new, name="probe_new"),
    path("reports/probes/<int:pk>/", probes_views.probe_detail, name="probe"),
    path("reports/probes/<int:pk>/prompts/<int:relation_pk>/", probes_views.probed_relation, name="probed_relation"),
    path("reports/probes/<int:pk>/records.jsonl", probes_views.probe_lines, {"kind": "records"}, name="probe_records"),
    path("reports/probes/<int:pk>/prompts.jsonl", probes_views.probe_lines, {"kind": "prompts"}, name="probe_prompts"),
    path("reports/probes/<int:pk>/tables.tex", probes_views.probe_latex, name="probe_latex"),
    path("reports/probes/<int:pk>/tables/<slug:name>.csv", probes_views.probe_table, name="probe_table"),
    path(
        "reports/probes/<int:pk>/figures/<slug:name>.<slug:file_format>", probes_views.probe_figure, name="probe_figure"
    ),
    *(
        path(
            f"reports/{folder}/<int:pk>/{verb}/", probes_views.job_change, {"change": change, "model": model}, name=name
        )
        for folder, model, prefix in (("probes", Probe, "probe"), ("text-tasks", TextTask, "text_task"))
        for verb, change, name in (
            ("cancel", ledger.cancel, f"{prefix}_cancel"),
            ("retry", ledger.retry, f"{prefix}_retry"),
        )
    ),
    # text tasks
    path("reports/text-tasks/", text_views.TextTaskList.as_view(), name="text_task_list"),
    path("reports/text-tasks/new/", text_views.text_task_new, name="text_task_new"),
    path("reports/text-tasks/<int:pk>/", text_views.text_task_detail, name="text_task"),
    path("reports/text-tasks/<int:pk>/records.jsonl", text_views.text_task_records, name="text_task_records"),
    path("reports/text-tasks/<int:pk>/figure.<slug:file_format>", text_views.text_task_figure, name="text_task_figure"),
    *routes("text-tasks", text_api.TextTaskViewSet, "api_text_task"),
    *routes("probes", probes_api.ProbeViewSet, "api_probe"),
]
