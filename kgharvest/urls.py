"""URLs of the whole product; each app names its own, each room of an app lists them."""

from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView

from kgharvest.home import home

harvesting = [
    path("", include("kgharvest.relations.urls")),
    path("", include("kgharvest.harvests.urls")),
    path("", include("kgharvest.knowledge.urls")),
]

accounts = [
    path("login/", auth.LoginView.as_view(), name="login"),
    path("logout/", auth.LogoutView.as_view(), name="logout"),
    path("password_change/", auth.PasswordChangeView.as_view(), name="password_change"),
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
    path("admin/", admin.site.urls),
]
