"""URLs of recruiting."""

from django.urls import path

from annotation.recruiting import views

urlpatterns = [
    path("rounds/<slug:name>/invites/", views.round_invites, name="round_invites"),
    path("rounds/<slug:name>/invites/revoke/", views.invites_revoke, name="invites_revoke"),
    path("rounds/<slug:name>/invites.csv", views.invites_csv, name="invites_csv"),
    path("rounds/<slug:name>/device/", views.device, name="device"),
    path("join/<slug:token>/", views.join, name="join"),
    path("invite/<slug:token>/", views.invite, name="invite"),
    path("return/", views.come_back, name="come_back"),
    path("return/<str:code>/", views.come_back, name="come_back"),
]
