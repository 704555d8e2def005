"""URLs of reports, comparisons, and score evaluations."""

from django.urls import path

import annotation.urls  # noqa: F401 - registers the converter of rounds
from evaluation.comparisons import api as comparisons_api
from evaluation.comparisons import views as comparisons_views
from evaluation.rehearsals import api as rehearsals_api
from evaluation.rehearsals import views as rehearsals_views
from evaluation.reports import api as reports_api
from evaluation.reports import views as reports_views
from evaluation.scores import api as scores_api
from evaluation.scores import views as scores_views
from evaluation.sharing import api as sharing_api
from evaluation.sharing import views as sharing_views
from evaluation.studies import views as studies_views
from kgharvest.api.views import routes
from kgharvest.archive import archive, restore

app_name = "evaluation"


urlpatterns = [
    path("projects/<round:path>/rehearsal/", rehearsals_views.rehearsal, name="rehearsal"),
    # reports
    path("projects/<round:path>/report/", reports_views.report_new, name="report_new"),
    path("reports/", reports_views.ReportList.as_view(), name="report_list"),
    path("reports/<int:pk>/", reports_views.report_detail, name="report"),
    path("reports/<int:pk>/archive/", reports_views.report_change, {"change": archive}, name="report_archive"),
    path("reports/<int:pk>/restore/", reports_views.report_change, {"change": restore}, name="report_restore"),
    path("reports/<int:pk>/sections/<slug:key>/", reports_views.appendix_section, name="report_section"),
    path("reports/<int:pk>/report.<slug:file_format>", reports_views.report_file, name="report_file"),
    path("reports/<int:pk>/tables/<slug:name>.csv", reports_views.table_file, name="table_file"),
    path("reports/<int:pk>/figures/<slug:name>.<slug:file_format>", reports_views.figure_file, name="figure"),
    path("reports/<int:pk>/comparisons/<int:number>/", reports_views.comparison, name="comparison"),
    path("reports/<int:pk>/tuples/", reports_views.tuples, name="tuples"),
    # studies
    path("studies/", studies_views.StudyList.as_view(), name="study_list"),
    path("studies/<int:pk>/", studies_views.study_detail, name="study"),
    path("studies/<int:pk>/study.toml", studies_views.study_file, name="study_file"),
    path("projects/<round:path>/study.toml", studies_views.round_study_file, name="round_study_file"),
    # links to frozen reports
    path("reports/<int:pk>/shares/", sharing_views.shares, name="shares"),
    path("reports/<int:pk>/shares/<int:share>/revoke/", sharing_views.share_revoke, name="share_revoke"),
    path("shared/<str:secret>/", sharing_views.shared_report, name="shared_report"),
    # comparisons
    path("knowledge/compare/", comparisons_views.compare_harvests, name="compare_harvests"),
    path("knowledge/compare/set/", comparisons_views.compare_sets, name="compare_sets"),
    path("reports/published/", comparisons_views.published, name="published"),
    path("reports/compare/", comparisons_views.compare, name="compare"),
    # scores
    path("reports/scores/", scores_views.ScoreList.as_view(), name="score_list"),
    path("reports/scores/new/", scores_views.score_new, name="score_new"),
    path("reports/scores/<int:pk>/", scores_views.scores, name="scores"),
    path("reports/scores/<int:pk>/cancel/", scores_views.score_cancel, name="score_cancel"),
    path("reports/scores/<int:pk>/scores.<slug:file_format>", scores_views.score_file, name="score_file"),
    # the API
    *routes("reports", reports_api.ReportViewSet, "api_report"),
    *routes("reports/<int:pk>/tuples", reports_api.ReportTupleViewSet, "api_report_tuple"),
    *routes("reports/<int:report_id>/shares", sharing_api.ShareViewSet, "api_share"),
    *routes("score-evaluations", scores_api.ScoreEvaluationViewSet, "api_score"),
    *routes("rounds", rehearsals_api.RehearsalViewSet, "api_round"),
    path("api/v1/comparisons/reports/", comparisons_api.ReportComparison.as_view(), name="api_compare_reports"),
    path("api/v1/comparisons/harvests/", comparisons_api.HarvestComparison.as_view(), name="api_compare_harvests"),
    path("api/v1/comparisons/sets/", comparisons_api.SetComparison.as_view(), name="api_compare_sets"),
]
