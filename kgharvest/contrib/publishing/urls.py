"""URLs of preregistrations, paper metadata, and replication packages."""

from django.urls import path

import annotation.urls  # noqa: F401 - registers the converter of rounds
from kgharvest.api.views import routes
from kgharvest.contrib.publishing.packs.api import PackViewSet
from kgharvest.contrib.publishing.packs.views import pack, pack_cancel, pack_file
from kgharvest.contrib.publishing.preregistration.api import PreregistrationViewSet
from kgharvest.contrib.publishing.preregistration.views import preregister, preregistration, preregistration_file
from kgharvest.contrib.publishing.statements.api import StatementsViewSet
from kgharvest.contrib.publishing.statements.views import statements

app_name = "publishing"
VERSION = "projects/<round:path>/preregistrations/<int:version>/"

urlpatterns = [
    path("projects/<round:path>/preregister/", preregister, name="preregister"),
    path(VERSION, preregistration, name="preregistration"),
    path(f"{VERSION}preregistration.<slug:file_format>", preregistration_file, name="preregistration_file"),
    path("reports/<int:pk>/pack/", pack, name="pack"),
    path("reports/<int:pk>/pack/<int:number>/cancel/", pack_cancel, name="pack_cancel"),
    path("reports/<int:pk>/pack/<int:number>/pack.zip", pack_file, name="pack_file"),
    path("reports/<int:pk>/paper/statements/", statements, name="paper_statements"),
    *routes("reports", StatementsViewSet, "api_report"),
    *routes("reports/<int:report_id>/packs", PackViewSet, "api_pack"),
    *routes("rounds/<int:round_id>/preregistrations", PreregistrationViewSet, "api_preregistration"),
]
