"""URL patterns of the routes of batches."""

from typing import Final

from django.urls import path, re_path

from pulljobs.api.base_views import UnknownPath
from pulljobs.workflows.batches.api import views

BATCH: Final = "batch/<str:batch>"

urlpatterns = [
    path("batches", views.BatchList.as_view(), name="batches"),
    path(BATCH, views.BatchDetail.as_view(), name="batch"),
    path(f"{BATCH}/members", views.BatchMembers.as_view(), name="batch-members"),
    path(f"{BATCH}/close", views.CloseBatch.as_view(), name="batch-close"),
    path(f"{BATCH}/cancel", views.CancelBatch.as_view(), name="batch-cancel"),
    path(f"{BATCH}/redrive", views.RedriveBatch.as_view(), name="batch-redrive"),
    re_path(r"^batch(es)?(/|$)", UnknownPath.as_view()),
]
