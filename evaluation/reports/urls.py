"""URLs of reports."""

from django.urls import path

from evaluation.reports import views

urlpatterns = [
    path("rounds/<slug:name>/report/", views.report_new, name="report_new"),
    path("reports/", views.report_list, name="report_list"),
    path("reports/<int:pk>/", views.report_detail, name="report"),
    path("reports/<int:pk>/report.<slug:file_format>", views.report_file, name="report_file"),
    path("reports/<int:pk>/tables/<slug:name>.csv", views.table_file, name="table_file"),
    path("reports/<int:pk>/figures/<slug:name>.<slug:file_format>", views.figure_file, name="figure"),
    path("reports/<int:pk>/comparisons/<int:number>/", views.comparison, name="comparison"),
    path("reports/<int:pk>/tuples/", views.tuples, name="tuples"),
]
