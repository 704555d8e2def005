"""The addresses of the whole product; each app names its own."""

from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView

from kgharvest import api
from kgharvest.services import jobs
from kgharvest.services.launches import cancel_launch, retry_cancelled, retry_failed
from kgharvest.views import entities, harvests, home, knowledge, launches, relation_sets, relations
from kgharvest.views.sensitive_words import sensitive_words

CANCEL_LAUNCH = {"change": cancel_launch, "done": "cancelled"}
RETRY_FAILED = {"change": retry_failed, "done": "queued again"}
RETRY_CANCELLED = {"change": retry_cancelled, "done": "queued again"}

harvesting = [
    path("relations/", relations.relation_list, name="relation_list"),
    path("relations/new/", relations.relation_new, name="relation_new"),
    path("relations/import/", relation_sets.relation_import, name="relation_import"),
    path("relations/<int:pk>/", relations.relation_detail, name="relation_detail"),
    path("relations/<int:pk>/edit/", relations.relation_edit, name="relation_edit"),
    path("relations/<int:pk>/delete/", relations.relation_delete, name="relation_delete"),
    path("relations/sets/<int:pk>/edit/", relation_sets.set_edit, name="set_edit"),
    path("relations/sets/<int:pk>/prompts/", relation_sets.set_prompts, name="set_prompts"),
    path("relations/sets/<int:pk>/duplicate/", relation_sets.set_duplicate, name="set_duplicate"),
    path("relations/sets/<int:pk>/delete/", relation_sets.set_delete, name="set_delete"),
    path("relations/sets/<int:pk>/relations.json", relation_sets.set_export, name="set_export"),
    path("harvests/", harvests.harvest_list, name="harvest_list"),
    path("harvests/new/", launches.launch_new, name="harvest_new"),
    path("harvests/launches/", launches.launch_list, name="launch_list"),
    path("harvests/launches/<int:pk>/", launches.launch_detail, name="launch_detail"),
    path("harvests/launches/<int:pk>/cancel/", launches.launch_change, CANCEL_LAUNCH, name="launch_cancel"),
    path("harvests/launches/<int:pk>/retry-failed/", launches.launch_change, RETRY_FAILED, name="launch_retry_failed"),
    path(
        "harvests/launches/<int:pk>/retry-cancelled/",
        launches.launch_change,
        RETRY_CANCELLED,
        name="launch_retry_cancelled",
    ),
    path("harvests/<int:pk>/", harvests.harvest_detail, name="harvest_detail"),
    path("harvests/<int:pk>/cancel/", harvests.harvest_change, {"change": jobs.cancel}, name="harvest_cancel"),
    path("harvests/<int:pk>/retry/", harvests.harvest_change, {"change": jobs.retry}, name="harvest_retry"),
    path("harvests/<int:pk>/tuples.jsonl", harvests.harvest_export, {"file_format": "jsonl"}, name="harvest_jsonl"),
    path("harvests/<int:pk>/tuples.csv", harvests.harvest_export, {"file_format": "csv"}, name="harvest_csv"),
    path("harvests/<int:pk>/tuples.nt", harvests.harvest_export, {"file_format": "nt"}, name="harvest_nt"),
    path("harvests/<int:pk>/tuples.ttl", harvests.harvest_export, {"file_format": "ttl"}, name="harvest_ttl"),
    path("api/launches/<int:pk>/", api.LaunchDetail.as_view(), name="launch_api"),
    path("knowledge/", knowledge.tuple_list, name="tuple_list"),
    path("knowledge/tuples/<int:pk>/", knowledge.tuple_detail, name="tuple_detail"),
    path("knowledge/entity/", entities.entity_detail, name="entity"),
    path("knowledge/entity.svg", entities.entity_graph, name="entity_graph"),
    path("knowledge/sensitive-words/", sensitive_words, name="sensitive_words"),
    path("api/harvests/<int:pk>/", api.HarvestDetail.as_view(), name="harvest_api"),
]

accounts = [
    path("login/", auth.LoginView.as_view(), name="login"),
    path("logout/", auth.LogoutView.as_view(), name="logout"),
    path("password_change/", auth.PasswordChangeView.as_view(), name="password_change"),
    path("password_change/done/", auth.PasswordChangeDoneView.as_view(), name="password_change_done"),
]

urlpatterns = [
    path("", home.home, name="home"),
    path("", include((harvesting, "kgharvest"))),
    path("", include("annotation.urls")),
    path("", include("evaluation.urls")),
    path("api/schema/", SpectacularAPIView.as_view(), name="api_schema"),
    path("accounts/", include(accounts)),
    path("admin/", admin.site.urls),
]
