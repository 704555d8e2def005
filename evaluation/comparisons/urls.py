"""URLs of comparisons."""

from django.urls import path

from evaluation.comparisons import views

urlpatterns = [
    path("knowledge/compare/", views.compare_harvests, name="compare_harvests"),
    path("knowledge/compare/set/", views.compare_sets, name="compare_sets"),
    path("reports/published/", views.published, name="published"),
    path("reports/compare/", views.compare, name="compare"),
]
