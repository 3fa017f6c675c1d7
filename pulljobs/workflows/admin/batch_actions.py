"""Actions on a batch in the admin, each after a confirmation: close, cancel, redrive."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from pulljobs import ids
from pulljobs.admin import formats
from pulljobs.admin.action_pages import opened_at, read_clock, reporting_errors
from pulljobs.errors import UnknownBatch
from pulljobs.workflows.batches import auditing, reading
from pulljobs.workflows.batches.reading import BatchView


class Action(NamedTuple):
    """Action of an operator on a batch."""

    label: str | Promise
    meaning: str | Promise
    """Text of the page that asks, with the counts of the batch."""
    permission: str
    is_possible: Callable[[BatchView], bool]
    act: Callable[..., int | None]
    """Function that acts, and returns the number of changed members, or None for a close."""


ACTIONS: Final = {
    "close": Action(
        gettext_lazy("Close"),
        gettext_lazy("It completes once its live members have ended. Live now: %(live)s."),
        "add_batch",
        lambda view: view.state == "open",
        auditing.close,
    ),
    "redrive": Action(
        gettext_lazy("Redrive"),
        gettext_lazy(
            "Its dead members are queued again: %(dead)s. If it was complete, another round "
            "begins, and its callbacks are published again."
        ),
        "redrive_batch",
        lambda view: view.dead > 0,
        auditing.redrive,
    ),
    "cancel": Action(
        gettext_lazy("Cancel"),
        gettext_lazy(
            "Its queued members are killed, and it takes no members any more. Members in flight go "
            "on. Live now: %(live)s."
        ),
        "cancel_batch",
        lambda view: view.completed_at is None,
        auditing.cancel,
    ),
}


def may(request: HttpRequest, action: Action) -> bool:
    """Return True if the user has the permission for the action."""
    return request.user.has_perm(f"pulljobs_workflows.{action.permission}")


def ask(model_admin: Any, name: str, request: HttpRequest, id: int) -> HttpResponse:
    """Show the page that asks for a confirmation of an action. Act if the user has confirmed it."""
    action = ACTIONS[name]
    if not may(request, action) or not model_admin.has_view_permission(request):
        raise PermissionDenied
    try:
        view = reading.get(id)
    except UnknownBatch as error:
        raise Http404(str(error)) from error
    back = formats.address(formats.site_of(request), "pulljobs_workflows_batch_change", id)
    if request.method == "POST":
        with reporting_errors(request):  # Its age may have deleted the batch just now.
            page = {"opened_at": opened_at(request)} if name == "redrive" else {}
            done = action.act(id, by=request.user.get_username(), **page)
            messages.success(request, _report(action, done))
        return HttpResponseRedirect(back)
    counts = {"live": f"{view.live:,}", "dead": f"{view.dead:,}"}
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "media": model_admin.media,
        "xid": ids.encode(id),
        "title": _("%(action)s batch %(name)s") % {"action": action.label, "name": view.name},
        "about": str(action.meaning) % counts,
        "opened": read_clock(),
        "back": back,
    }
    return TemplateResponse(request, "admin/pulljobs_workflows/batch/ask.html", context)


def _report(action: Action, done: int | None) -> str:
    if done is None:
        return _("%s: done.") % action.label
    text = ngettext("%(action)s: %(done)s member.", "%(action)s: %(done)s members.", done)
    return text % {"action": action.label, "done": f"{done:,}"}
