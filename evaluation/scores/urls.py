"""URLs of scores."""

from django.urls import path

from evaluation.scores import views
from evaluation.scores.api import ScoreEvaluationDetail

urlpatterns = [
    path("reports/scores/", views.score_list, name="score_list"),
    path("reports/scores/new/", views.score_new, name="score_new"),
    path("reports/scores/<int:pk>/", views.scores, name="scores"),
    path("reports/scores/<int:pk>/cancel/", views.score_cancel, name="score_cancel"),
    path("reports/scores/<int:pk>/scores.<slug:file_format>", views.score_file, name="score_file"),
    path("api/scores/<int:pk>/", ScoreEvaluationDetail.as_view(), name="score_api"),
]
