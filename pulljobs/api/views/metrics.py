"""/metrics: what was counted in this process or those it shares with, and how things stand."""

from django.http import HttpResponse
from rest_framework.request import Request

from pulljobs import metrics
from pulljobs.api import exceptions
from pulljobs.api.base_views import UserView


class Metrics(UserView):
    needs = {"GET": ["pulljobs.view_job"]}

    def get(self, request: Request) -> HttpResponse:
        if not metrics.is_installed():
            raise exceptions.without_metrics()
        from pulljobs.metrics import exposition

        body, content_type = exposition.answer(request.headers.get("Accept", ""))
        return HttpResponse(body, content_type=content_type)
