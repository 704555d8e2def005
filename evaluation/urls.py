"""Addresses of reports."""

from django.urls import path

from evaluation.api import ProbeDetail, ScoreEvaluationDetail
from evaluation.views import compare, figures, harvests, probes, reports, scores, tuples
from kgharvest.services import jobs

app_name = "evaluation"

urlpatterns = [
    path("rounds/<slug:name>/report/", reports.report_new, name="report_new"),
    path("knowledge/compare/", harvests.compare_harvests, name="compare_harvests"),
    path("knowledge/compare/set/", harvests.compare_sets, name="compare_sets"),
    path("reports/", reports.report_list, name="report_list"),
    path("reports/published/", compare.published, name="published"),
    path("reports/compare/", compare.compare, name="compare"),
    path("reports/scores/", scores.score_list, name="score_list"),
    path("reports/scores/new/", scores.score_new, name="score_new"),
    path("reports/scores/<int:pk>/", scores.scores, name="scores"),
    path("reports/scores/<int:pk>/cancel/", scores.score_cancel, name="score_cancel"),
    path("reports/scores/<int:pk>/scores.<slug:file_format>", scores.score_file, name="score_file"),
    path("reports/probes/", probes.probe_list, name="probe_list"),
    path("reports/probes/new/", probes.probe_new, name="probe_new"),
    path("reports/probes/<int:pk>/", probes.probe_detail, name="probe"),
    path("reports/probes/<int:pk>/cancel/", probes.probe_change, {"change": jobs.cancel}, name="probe_cancel"),
    path("reports/probes/<int:pk>/retry/", probes.probe_change, {"change": jobs.retry}, name="probe_retry"),
    path("reports/probes/<int:pk>/prompts/<int:relation_pk>/", probes.probed_relation, name="probed_relation"),
    path("reports/probes/<int:pk>/records.jsonl", probes.probe_lines, {"kind": "records"}, name="probe_records"),
    path("reports/probes/<int:pk>/prompts.jsonl", probes.probe_lines, {"kind": "prompts"}, name="probe_prompts"),
    path("reports/probes/<int:pk>/tables.tex", probes.probe_latex, name="probe_latex"),
    path("reports/probes/<int:pk>/tables/<slug:name>.csv", probes.probe_table, name="probe_table"),
    path("reports/probes/<int:pk>/figures/<slug:name>.<slug:file_format>", probes.probe_figure, name="probe_figure"),
    path("api/probes/<int:pk>/", ProbeDetail.as_view(), name="probe_api"),
    path("api/scores/<int:pk>/", ScoreEvaluationDetail.as_view(), name="score_api"),
    path("reports/<int:pk>/", reports.report_detail, name="report"),
    path("reports/<int:pk>/report.<slug:file_format>", reports.report_file, name="report_file"),
    path("reports/<int:pk>/tables/<slug:name>.csv", reports.table_file, name="table_file"),
    path("reports/<int:pk>/figures/<slug:name>.<slug:file_format>", figures.figure_file, name="figure"),
    path("reports/<int:pk>/comparisons/<int:number>/", reports.comparison, name="comparison"),
    path("reports/<int:pk>/tuples/", tuples.tuples, name="tuples"),
]
