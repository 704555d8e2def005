"""URLs of comparisons."""

from django.urls import path

from evaluation.comparisons import harvest_views, views

urlpatterns = [
    path("knowledge/compare/", harvest_views.compare_harvests, name="compare_harvests"),
    path("knowledge/compare/set/", harvest_views.compare_sets, name="compare_sets"),
    path("reports/published/", views.published, name="published"),
    path("reports/compare/", views.compare, name="compare"),
]
