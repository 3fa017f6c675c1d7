"""Page of the weights of a consumer's keys: how many jobs a claim takes from a key in its turn."""

from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.validators import ProhibitNullCharactersValidator
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pulljobs import auditing, weights
from pulljobs.admin import token_holder_actions
from pulljobs.conf import settings
from pulljobs.models import Consumer

SHOWN: Final = 1_000
"""Largest number of keys in the table, the first by name."""


class WeightForm(forms.Form):
    """Form that sets the weight of one key."""

    key = forms.CharField(
        required=False,
        strip=False,
        max_length=weights.LONGEST_KEY,
        label=gettext_lazy("Key"),
        help_text=gettext_lazy("Empty: jobs without a key."),
        validators=[ProhibitNullCharactersValidator()],
    )
    weight = forms.IntegerField(
        min_value=1,
        max_value=weights.MOST,
        label=gettext_lazy("Weight"),
        help_text=gettext_lazy("Jobs that it gives while other keys give one."),
    )


def show_weights(listed: Any, request: HttpRequest, id: int) -> HttpResponse:
    """Answer GET with the page of a consumer's weights, and POST by setting the weight of a key.

    `listed` is the admin of consumers, and `id` the primary key of the consumer.
    """
    consumer: Consumer = token_holder_actions.find_token_holder(listed, request, id, "view")
    may_change = listed.has_change_permission(request, consumer)
    form = WeightForm(request.POST or None)
    if request.method == "POST":
        if not may_change:
            raise PermissionDenied
        if form.is_valid():
            _set_weight(request, consumer, **form.cleaned_data)
            return HttpResponseRedirect(request.get_full_path())
    known = weights.read_weights(consumer, most=SHOWN)
    return token_holder_actions.render_page(
        listed,
        request,
        consumer,
        "weights",
        form=form if may_change else None,
        weights=list(known.items()),
        is_cut=len(known) == SHOWN,
        title=_("Weights of the keys of %s") % consumer,
    )


def _set_weight(request: HttpRequest, consumer: Consumer, key: str, weight: int) -> None:
    with transaction.atomic(using=settings().DATABASE):
        weights.set_weight(consumer, key, weight)
        auditing.note_weight(consumer, key, weight, by=request.user.get_username())
    values = {"key": key or _("jobs without a key"), "weight": weight}
    messages.success(request, _("The weight of %(key)s is %(weight)d.") % values)
