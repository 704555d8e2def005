"""URLs of panels, pay, and recruiting platforms."""

from django.urls import path

from annotation.urls import ROUND
from kgharvest.api.views import routes
from kgharvest.contrib.recruiting import api, views
from kgharvest.contrib.recruiting.panels import participant_views
from kgharvest.contrib.recruiting.panels.publishing import pause_panel, resume_panel
from kgharvest.contrib.recruiting.prolific import views as prolific_views

app_name = "recruiting"

PANEL = f"{ROUND}panels/<slug:name>/"

urlpatterns = [
    # platforms
    path("recruiting/prolific/events/", prolific_views.take_event, name="prolific_events"),
    path(f"{PANEL}prolific/", prolific_views.study, name="prolific_study"),
    path(f"{PANEL}reconcile/", prolific_views.panel_reconcile, name="panel_reconcile"),
    # panels
    path(f"{ROUND}panels/", views.panel_list, name="panel_list"),
    path(f"{ROUND}panels/new/", views.panel_new, name="panel_new"),
    path(PANEL, views.panel, name="panel"),
    path(f"{PANEL}edit/", views.panel_edit, name="panel_edit"),
    path(f"{PANEL}delete/", views.panel_delete, name="panel_delete"),
    path(f"{PANEL}publish/", views.panel_publish, name="panel_publish"),
    path(f"{PANEL}stop/", views.panel_stop, name="panel_stop"),
    path(f"{PANEL}pause/", views.panel_change, {"change": pause_panel}, name="panel_pause"),
    path(f"{PANEL}resume/", views.panel_change, {"change": resume_panel}, name="panel_resume"),
    path(f"{PANEL}free/", views.panel_free, name="panel_free"),
    path(f"{PANEL}participants.csv", views.participants_csv, name="participants_csv"),
    # pay
    path(f"{PANEL}pay/", views.panel_pay, name="panel_pay"),
    path(f"{PANEL}pay/review/", views.panel_pay_review, name="panel_pay_review"),
    path(f"{PANEL}pay/people/<int:pk>/", views.panel_pay_person, name="panel_pay_person"),
    path(f"{PANEL}pay/floor/", views.panel_pay_floor, name="panel_pay_floor"),
    path(f"{PANEL}pay/commands/<int:pk>/", views.panel_pay_command, name="panel_pay_command"),
    path(f"{PANEL}pay/noted/", views.panel_pay_noted, name="panel_pay_noted"),
    path(f"{PANEL}pay/bonuses-<slug:layout>.csv", views.panel_pay_bonus_file, name="panel_pay_bonus_file"),
    path(f"{PANEL}pay/ledger.csv", views.panel_pay_ledger, name="panel_pay_ledger"),
    path("enter/<slug:token>/", participant_views.panel_enter, name="panel_enter"),
    path("judge/<int:round_id>/done/", participant_views.panel_done, name="panel_done"),
    # the API
    *routes("rounds/<int:round_id>/panels", api.PanelViewSet, "api_panel"),
    *routes("rounds/<int:round_id>/panels/<slug:name>/participants", api.ParticipantViewSet, "api_participant"),
    *routes("rounds/<int:round_id>/panels", api.PayViewSet, "api_panel"),
    *routes("rounds/<int:round_id>/panels/<slug:name>/pay/entries", api.PayEntryViewSet, "api_pay_entry"),
    *routes("rounds/<int:round_id>/panels/<slug:name>/pay/commands", api.CommandViewSet, "api_pay_command"),
    *routes("rounds/<int:round_id>/panels", api.ReconciliationViewSet, "api_panel"),
]
