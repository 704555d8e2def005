"""URLs for importing and exporting knowledge graphs."""

from django.urls import path

from kgharvest.api.views import routes
from kgharvest.contrib.knowledge_graphs.imports import api as imports_api
from kgharvest.contrib.knowledge_graphs.imports import views as imports_views
from kgharvest.contrib.knowledge_graphs.judged_kg import api as judged_kg_api
from kgharvest.contrib.knowledge_graphs.judged_kg import views as judged_kg_views

app_name = "knowledge_graphs"

urlpatterns = [
    path("harvests/import/", imports_views.kg_upload, name="kg_upload"),
    path("harvests/import/<int:pk>/", imports_views.kg_mapping, name="kg_mapping"),
    path("reports/<int:pk>/kg/", judged_kg_views.judged_kg, name="judged_kg"),
    path("reports/<int:pk>/kg/file/", judged_kg_views.judged_kg_file, name="judged_kg_file"),
    path("api/v1/harvests/import-kg/", imports_api.KGImport.as_view(), name="api_kg_import"),
    *routes("reports", judged_kg_api.JudgedKGViewSet, "api_report"),
]
