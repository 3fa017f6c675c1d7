"""URL patterns of the HTTP API of schedules."""

from typing import Final

from django.urls import path, re_path

from pulljobs.api.base_views import UnknownPath
from pulljobs.schedules.api import views

SCHEDULE: Final = "schedule/<str:schedule>"

urlpatterns = [
    path("schedules", views.Schedules.as_view(), name="schedules"),
    path(SCHEDULE, views.ScheduleView.as_view(), name="schedule"),
    path(f"{SCHEDULE}/pause", views.PauseSchedule.as_view(), name="schedule-pause"),
    path(f"{SCHEDULE}/resume", views.ResumeSchedule.as_view(), name="schedule-resume"),
    path(f"{SCHEDULE}/fire", views.FireSchedule.as_view(), name="schedule-fire"),
    path(f"{SCHEDULE}/backfill", views.BackfillSchedule.as_view(), name="schedule-backfill"),
    path(f"{SCHEDULE}/slots", views.ScheduleSlots.as_view(), name="schedule-slots"),
    re_path(r"^schedules?(/|$)", UnknownPath.as_view()),
]
