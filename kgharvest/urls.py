"""URLs of the whole product; each app names its own."""

from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView

from kgharvest.accounts.views import Login, PasswordChange
from kgharvest.harvests import api as harvests_api
from kgharvest.harvests import views as harvests_views
from kgharvest.harvests.launches import cancel_launch, retry_cancelled, retry_failed
from kgharvest.jobs import ledger
from kgharvest.knowledge import views as knowledge_views
from kgharvest.knowledge.views import sensitive_words
from kgharvest.pages.home import home
from kgharvest.relations import views as relations_views

CANCEL_LAUNCH = {"change": cancel_launch, "done": "cancelled"}
RETRY_FAILED = {"change": retry_failed, "done": "queued again"}
RETRY_CANCELLED = {"change": retry_cancelled, "done": "queued again"}

harvesting = [
    # relations
    path("relations/", relations_views.relation_list, name="relation_list"),
    path("relations/new/", relations_views.relation_new, name="relation_new"),
    path("relations/import/", relations_views.relation_import, name="relation_import"),
    path("relations/<int:pk>/", relations_views.relation_detail, name="relation_detail"),
    path("relations/<int:pk>/edit/", relations_views.relation_edit, name="relation_edit"),
    path("relations/<int:pk>/delete/", relations_views.relation_delete, name="relation_delete"),
    path("relations/sets/<int:pk>/edit/", relations_views.set_edit, name="set_edit"),
    path("relations/sets/<int:pk>/prompts/", relations_views.set_prompts, name="set_prompts"),
    path("relations/sets/<int:pk>/duplicate/", relations_views.set_duplicate, name="set_duplicate"),
    path("relations/sets/<int:pk>/delete/", relations_views.set_delete, name="set_delete"),
    path("relations/sets/<int:pk>/relations.json", relations_views.set_export, name="set_export"),
    # harvests
    path("harvests/", harvests_views.harvest_list, name="harvest_list"),
    path("harvests/new/", harvests_views.launch_new, name="harvest_new"),
    path("harvests/launches/", harvests_views.launch_list, name="launch_list"),
    path("harvests/launches/<int:pk>/", harvests_views.launch_detail, name="launch_detail"),
    path("harvests/launches/<int:pk>/cancel/", harvests_views.launch_change, CANCEL_LAUNCH, name="launch_cancel"),
    path(
        "harvests/launches/<int:pk>/retry-failed/",
        harvests_views.launch_change,
        RETRY_FAILED,
        name="launch_retry_failed",
    ),
    path(
        "harvests/launches/<int:pk>/retry-cancelled/",
        harvests_views.launch_change,
        RETRY_CANCELLED,
        name="launch_retry_cancelled",
    ),
    path("harvests/<int:pk>/", harvests_views.harvest_detail, name="harvest_detail"),
    path("harvests/<int:pk>/cancel/", harvests_views.harvest_change, {"change": ledger.cancel}, name="harvest_cancel"),
    path("harvests/<int:pk>/retry/", harvests_views.harvest_change, {"change": ledger.retry}, name="harvest_retry"),
    path("harvests/<int:pk>/tuples.<str:file_format>", harvests_views.harvest_export, name="harvest_export"),
    path("api/launches/<int:pk>/", harvests_api.LaunchDetail.as_view(), name="launch_api"),
    path("api/harvests/<int:pk>/", harvests_api.HarvestDetail.as_view(), name="harvest_api"),
    # knowledge
    path("knowledge/", knowledge_views.tuple_list, name="tuple_list"),
    path("knowledge/tuples/<int:pk>/", knowledge_views.tuple_detail, name="tuple_detail"),
    path("knowledge/entity/", knowledge_views.entity_detail, name="entity"),
    path("knowledge/entity.svg", knowledge_views.entity_graph, name="entity_graph"),
    path("knowledge/sensitive-words/", sensitive_words, name="sensitive_words"),
]

accounts = [
    path("login/", Login.as_view(), name="login"),
    path("logout/", auth.LogoutView.as_view(), name="logout"),
    path("password_change/", PasswordChange.as_view(), name="password_change"),
    path("password_change/done/", auth.PasswordChangeDoneView.as_view(), name="password_change_done"),
]

urlpatterns = [
    path("", home, name="home"),
    path("", include((harvesting, "kgharvest"))),
    path("", include("annotation.urls")),
    path("", include("evaluation.urls")),
    path("", include("probing.urls")),
    path("api/schema/", SpectacularAPIView.as_view(), name="api_schema"),
    path("accounts/", include(accounts)),
    path("admin/login/", Login.as_view()),  # with the same limits, and so the next
    path("admin/password_change/", PasswordChange.as_view()),
    path("admin/", admin.site.urls),
]
