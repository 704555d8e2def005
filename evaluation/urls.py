"""URLs of reports, comparisons and score evaluations."""

from django.urls import include, path

app_name = "evaluation"

urlpatterns = [
    path("", include("evaluation.reports.urls")),
    path("", include("evaluation.comparisons.urls")),
    path("", include("evaluation.scores.urls")),
]
