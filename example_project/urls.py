"""URLs of the example project: the admin, and those of pulljobs."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), path("", include("pulljobs.api.urls"))]
