"""URLs of preregistrations, paper metadata, and replication packages."""

from django.urls import path

import annotation.urls  # noqa: F401 - registers the converter of rounds
from kgharvest.api.views import routes
from kgharvest.contrib.publishing.packs import api as packs_api
from kgharvest.contrib.publishing.packs import views as packs_views
from kgharvest.contrib.publishing.preregistration import api as preregistration_api
from kgharvest.contrib.publishing.preregistration import views as preregistration_views
from kgharvest.contrib.publishing.statements import api as statements_api
from kgharvest.contrib.publishing.statements import views as statements_views

app_name = "publishing"


urlpatterns = [
    path("projects/<round:path>/preregister/", preregistration_views.preregister, name="preregister"),
    path(
        "projects/<round:path>/preregistrations/<int:version>/",
        preregistration_views.preregistration,
        name="preregistration",
    ),
    path(
        "projects/<round:path>/preregistrations/<int:version>/preregistration.<slug:file_format>",
        preregistration_views.preregistration_file,
        name="preregistration_file",
    ),
    path("reports/<int:pk>/pack/", packs_views.pack, name="pack"),
    path("reports/<int:pk>/pack/<int:number>/cancel/", packs_views.pack_cancel, name="pack_cancel"),
    path("reports/<int:pk>/pack/<int:number>/pack.zip", packs_views.pack_file, name="pack_file"),
    path("reports/<int:pk>/paper/statements/", statements_views.statements, name="paper_statements"),
    *routes("reports", statements_api.StatementsViewSet, "api_report"),
    *routes("reports/<int:report_id>/packs", packs_api.PackViewSet, "api_pack"),
    *routes(
        "rounds/<int:round_id>/preregistrations", preregistration_api.PreregistrationViewSet, "api_preregistration"
    ),
]
