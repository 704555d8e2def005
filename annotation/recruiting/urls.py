"""URLs of recruiting."""

from django.urls import path

from annotation.recruiting import join_views, views

urlpatterns = [
    path("rounds/<slug:name>/invites/", views.round_invites, name="round_invites"),
    path("rounds/<slug:name>/invites/revoke/", views.invites_revoke, name="invites_revoke"),
    path("rounds/<slug:name>/invites.csv", views.invites_csv, name="invites_csv"),
    path("rounds/<slug:name>/device/", join_views.device, name="device"),
    path("join/<slug:token>/", join_views.join, name="join"),
    path("invite/<slug:token>/", join_views.invite, name="invite"),
    path("return/", join_views.come_back, name="come_back"),
    path("return/<str:code>/", join_views.come_back, name="come_back"),
]
