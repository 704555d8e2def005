"""Addresses of reports."""

from django.urls import path

from evaluation import views

app_name = "evaluation"

urlpatterns = [
    path("rounds/<slug:name>/report/", views.report_new, name="report_new"),
    path("reports/", views.report_list, name="report_list"),
    path("reports/<int:pk>/", views.report_detail, name="report"),
    path("reports/<int:pk>/report.<slug:file_format>", views.report_file, name="report_file"),
]
