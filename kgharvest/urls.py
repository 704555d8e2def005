"""URL configuration of the project."""

from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import include, path, reverse_lazy
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularSwaggerSplitView

from kgharvest.accounts import api as accounts_api
from kgharvest.accounts import project_views
from kgharvest.accounts.projects import hand_over, set_role
from kgharvest.accounts.sign_in import views as sign_in_views
from kgharvest.accounts.views import (
    Login,
    Logout,
    PasswordChange,
    PasswordReset,
    PasswordResetConfirm,
    token_list,
    token_revoke,
    welcome_tokens,
)
from kgharvest.api.schema_view import SchemaView
from kgharvest.api.views import routes
from kgharvest.audit import api as audit_api
from kgharvest.audit import views as audit_views
from kgharvest.entities.api import EntityTableViewSet
from kgharvest.entities.views import set_entities
from kgharvest.harvests import api as harvests_api
from kgharvest.harvests import views as harvests_views
from kgharvest.harvests.launches import cancel_launch, retry_cancelled, retry_failed
from kgharvest.jobs import api as jobs_api
from kgharvest.jobs import ledger
from kgharvest.jobs import views as jobs_views
from kgharvest.jobs import workers as worker_services
from kgharvest.knowledge import api as knowledge_api
from kgharvest.knowledge import views as knowledge_views
from kgharvest.knowledge.views import sensitive_words
from kgharvest.operations.views import PROBES
from kgharvest.optional_apps import optional_urls
from kgharvest.pages.home import home
from kgharvest.relations import api as relations_api
from kgharvest.relations import views as relations_views
from kgharvest.webhooks import api as webhook_api
from kgharvest.webhooks import views as webhook_views
from kgharvest.webhooks.outbox import disable_webhook, enable_webhook, send_test

WEBHOOK_CHANGES = {
    "test": {"change": send_test, "done": "Test event queued. The delivery log shows the result within seconds."},
    "enable": {"change": enable_webhook, "done": "Webhook enabled. Pending deliveries are being sent."},
    "disable": {"change": disable_webhook, "done": "Webhook disabled. No events are sent."},
}
WORKER_CHANGES = {
    "drain": {"change": worker_services.drain, "done": "is draining. It exits after its running jobs."},
    "undrain": {"change": worker_services.undrain, "done": "accepts jobs again."},
}
LAUNCH_CHANGES = {
    "cancel": {"change": cancel_launch, "done": "cancelled"},
    "retry-failed": {"change": retry_failed, "done": "queued again"},
    "retry-cancelled": {"change": retry_cancelled, "done": "queued again"},
}
PROJECT = "projects/<slug:slug>"
MEMBER = f"{PROJECT}/members/<int:pk>"
WEBHOOK = f"{PROJECT}/webhooks/<int:pk>"

harvesting = [
    # projects
    path("projects/", project_views.ProjectList.as_view(), name="project_list"),
    path("projects/new/", project_views.project_new, name="project_new"),
    path(f"{PROJECT}/", project_views.project_detail, name="project"),
    path(f"{PROJECT}/rename/", project_views.project_rename, name="project_rename"),
    path(f"{PROJECT}/publish/", project_views.project_publish, name="project_publish"),
    path(f"{MEMBER}/role/", project_views.member_change, {"change": set_role}, name="member_role"),
    path(f"{MEMBER}/hand-over/", project_views.member_change, {"change": hand_over}, name="member_hand_over"),
    path(f"{MEMBER}/remove/", project_views.member_remove, name="member_remove"),
    path(f"{PROJECT}/annotators/new/", project_views.annotator_new, name="annotator_new"),
    path(f"{PROJECT}/invites/", project_views.invite_new, name="project_invites"),
    path(f"{PROJECT}/invites/<int:pk>/revoke/", project_views.invite_revoke, name="project_invite_revoke"),
    path(f"{PROJECT}/tokens/revoke/", project_views.tokens_revoke, name="project_tokens_revoke"),
    path(f"{PROJECT}/tokens/<int:pk>/revoke/", project_views.tokens_revoke, name="project_token_revoke"),
    path(f"{PROJECT}/audit/", audit_views.project_trail, name="project_trail"),
    path("audit/", audit_views.whole_trail, name="whole_trail"),
    path(f"{PROJECT}/webhooks/", webhook_views.webhook_list, name="webhook_list"),
    path(f"{WEBHOOK}/", webhook_views.webhook_detail, name="webhook"),
    *(
        path(f"{WEBHOOK}/{verb}/", webhook_views.webhook_change, options, name=f"webhook_{verb}")
        for verb, options in WEBHOOK_CHANGES.items()
    ),
    path(f"{WEBHOOK}/rotate/", webhook_views.webhook_rotate, name="webhook_rotate"),
    path(f"{WEBHOOK}/delete/", webhook_views.webhook_delete, name="webhook_delete"),
    path(
        f"{WEBHOOK}/deliveries/<int:delivery>/send-again/",
        webhook_views.delivery_send_again,
        name="delivery_send_again",
    ),
    path("member/<slug:secret>/", project_views.project_join, name="project_join"),
    # relations
    path("relations/", relations_views.RelationList.as_view(), name="relation_list"),
    path("relations/new/", relations_views.relation_new, name="relation_new"),
    path("relations/import/", relations_views.relation_import, name="relation_import"),
    path("relations/shipped/", relations_views.load_shipped, name="relation_load_shipped"),
    path("relations/<int:pk>/", relations_views.relation_detail, name="relation_detail"),
    path("relations/<int:pk>/edit/", relations_views.relation_edit, name="relation_edit"),
    path("relations/<int:pk>/delete/", relations_views.relation_delete, name="relation_delete"),
    path("relations/sets/<int:pk>/edit/", relations_views.set_edit, name="set_edit"),
    path("relations/sets/<int:pk>/prompts/", relations_views.set_prompts, name="set_prompts"),
    path("relations/sets/<int:pk>/entities/", set_entities, name="set_entities"),
    path("relations/sets/<int:pk>/duplicate/", relations_views.set_duplicate, name="set_duplicate"),
    path("relations/sets/<int:pk>/delete/", relations_views.set_delete, name="set_delete"),
    path("relations/sets/<int:pk>/relations.json", relations_views.set_export, name="set_export"),
    # workers
    path("workers/", jobs_views.worker_list, name="worker_list"),
    *(
        path(f"workers/<int:pk>/{verb}/", jobs_views.worker_change, options, name=f"worker_{verb}")
        for verb, options in WORKER_CHANGES.items()
    ),
    # harvests
    path("harvests/", harvests_views.HarvestList.as_view(), name="harvest_list"),
    path("harvests/new/", harvests_views.launch_new, name="harvest_new"),
    path("harvests/launches/", harvests_views.LaunchList.as_view(), name="launch_list"),
    path("harvests/launches/<int:pk>/", harvests_views.launch_detail, name="launch_detail"),
    *(
        path(
            f"harvests/launches/<int:pk>/{verb}/",
            harvests_views.launch_change,
            options,
            name=f"launch_{verb.replace('-', '_')}",
        )
        for verb, options in LAUNCH_CHANGES.items()
    ),
    path("harvests/<int:pk>/", harvests_views.harvest_detail, name="harvest_detail"),
    path("harvests/<int:pk>/cancel/", harvests_views.harvest_change, {"change": ledger.cancel}, name="harvest_cancel"),
    path("harvests/<int:pk>/retry/", harvests_views.harvest_change, {"change": ledger.retry}, name="harvest_retry"),
    path("harvests/<int:pk>/tuples.<str:file_format>", harvests_views.harvest_export, name="harvest_export"),
    path("harvests/launches/<int:pk>/progress.json", harvests_views.launch_progress, name="launch_progress"),
    # knowledge
    path("knowledge/", knowledge_views.tuple_list, name="tuple_list"),
    path("knowledge/tuples/<int:pk>/", knowledge_views.tuple_detail, name="tuple_detail"),
    path("knowledge/entity/", knowledge_views.entity_detail, name="entity"),
    path("knowledge/entity.svg", knowledge_views.entity_graph, name="entity_graph"),
    path("knowledge/sensitive-words/", sensitive_words, name="sensitive_words"),
    # tokens
    path("accounts/tokens/", token_list, name="token_list"),
    path("accounts/tokens/<int:pk>/revoke/", token_revoke, name="token_revoke"),
    # the API
    *routes("tokens", accounts_api.TokenViewSet, "api_token"),
    *routes("projects", accounts_api.ProjectViewSet, "api_project"),
    *routes(f"{PROJECT}/members", accounts_api.MemberViewSet, "api_member"),
    *routes(f"{PROJECT}/invites", accounts_api.InviteViewSet, "api_project_invite"),
    *routes(f"{PROJECT}/tokens", accounts_api.ProjectTokenViewSet, "api_project_token"),
    *routes(f"{PROJECT}/audit", audit_api.ProjectTrailViewSet, "api_project_entry", "api_project_trail"),
    *routes("audit", audit_api.TrailViewSet, "api_entry", "api_trail"),
    *routes(f"{PROJECT}/webhooks", webhook_api.WebhookViewSet, "api_webhook"),
    *routes(f"{WEBHOOK}/deliveries", webhook_api.DeliveryViewSet, "api_delivery", "api_deliveries"),
    *routes("relation-sets", relations_api.SetViewSet, "api_set"),
    *routes("relations", relations_api.RelationViewSet, "api_relation"),
    *routes("relation-sets", EntityTableViewSet, "api_set"),
    *routes("jobs", jobs_api.JobViewSet, "api_job"),
    *routes("workers", jobs_api.WorkerViewSet, "api_worker"),
    *routes("language-models", harvests_api.LanguageModelViewSet, "api_language_model"),
    *routes("launches", harvests_api.LaunchViewSet, "api_launch", "api_launches"),
    *routes("harvests", harvests_api.HarvestViewSet, "api_harvest"),
    *routes("harvests/<int:pk>/tuples", harvests_api.TupleViewSet, "api_harvest_tuple"),
    *routes("knowledge", knowledge_api.KnowledgeViewSet, "api_knowledge_tuple", "api_knowledge"),
    *routes("knowledge/<int:pk>/curations", knowledge_api.CurationViewSet, "api_curation"),
    path("api/v1/entity/", knowledge_api.EntityDetail.as_view(), name="api_entity"),
    path("api/v1/sensitive-words/", knowledge_api.WordList.as_view(), name="api_sensitive_words"),
]

accounts = [
    path("login/", Login.as_view(), name="login"),
    path("logout/", Logout.as_view(), name="logout"),
    path("password_change/", PasswordChange.as_view(), name="password_change"),
    path("password_change/done/", auth.PasswordChangeDoneView.as_view(), name="password_change_done"),
    path("password_reset/", PasswordReset.as_view(), name="password_reset"),
    path("password_reset/done/", auth.PasswordResetDoneView.as_view(), name="password_reset_done"),
    path("reset/<uidb64>/<token>/", PasswordResetConfirm.as_view(), name="password_reset_confirm"),
    path(
        "welcome/<uidb64>/<token>/",
        PasswordResetConfirm.as_view(
            token_generator=welcome_tokens,
            success_url=reverse_lazy("account_welcome_done"),
            extra_context={"is_first": True},
        ),
        name="account_welcome",
    ),
    path(
        "welcome/done/",
        auth.PasswordResetCompleteView.as_view(extra_context={"is_first": True}),
        name="account_welcome_done",
    ),
    path("reset/done/", auth.PasswordResetCompleteView.as_view(), name="password_reset_complete"),
    path("", sign_in_views.account, name="account"),
    path("second-factor/", sign_in_views.second_factor_code, name="second_factor"),
    path("second-factor/set-up/", sign_in_views.second_factor_set_up, name="second_factor_set_up"),
    path("second-factor/recovery-codes/", sign_in_views.recovery_codes, name="recovery_codes"),
    path("second-factor/remove/", sign_in_views.second_factor_remove, name="second_factor_remove"),
    path("openid/", sign_in_views.openid_begin, name="openid"),
    path("openid/link/", sign_in_views.openid_link, name="openid_link"),
    path("openid/callback/", sign_in_views.openid_callback, name="openid_callback"),
    path("openid/<int:pk>/unlink/", sign_in_views.openid_unlink, name="openid_unlink"),
]

probes = [path(name, view, name=name) for name, view in PROBES.items()]

handler404 = "kgharvest.http.not_found"
handler500 = "kgharvest.http.failed"

urlpatterns = [
    path("", home, name="home"),
    path("", include((harvesting, "kgharvest"))),
    path("", include("annotation.urls")),
    path("", include("evaluation.urls")),
    *optional_urls(),
    path("api/v1/schema/", SchemaView.as_view(), name="api_schema"),
    path("api/v1/docs/", SpectacularSwaggerSplitView.as_view(url_name="api_schema"), name="api_docs"),
    path("api/schema/", RedirectView.as_view(pattern_name="api_schema", permanent=True)),
    path("accounts/", include(accounts)),
    path("", include(probes)),
    path("admin/login/", Login.as_view()),  # replaces Django's pages: these pages have rate limits and two-factor login
    path("admin/logout/", Logout.as_view()),
    path("admin/password_change/", PasswordChange.as_view()),
    path("admin/", admin.site.urls),
]
