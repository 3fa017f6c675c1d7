"""Forms that do not undo a change that was made after their page was opened."""

from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy as _

SEEN: Final = "_seen"
"""Name of the hidden field with the time of the row's last change when the page was opened."""
CHANGED: Final = _(
    "This %s was changed after you opened the page, and to save the form would undo that: open the "
    "page again."
)


class GuardedForm(forms.ModelForm):  # type: ignore[type-arg]  # generic for mypy only
    """Form of a row with a `changed_at`, which its page sends back as a hidden field.

    The page includes the template `admin/pulljobs/seen.html` for that.
    """

    @property
    def seen(self) -> str:
        """Time of the row's last change when the user opened the page, as text, or "" without row.

        `clean` compares it with the row.
        """
        if self.is_bound:
            return str(self.data.get(SEEN, ""))
        return "" if self.instance.pk is None else self.instance.changed_at.isoformat()

    def clean(self) -> dict[str, Any]:
        """Add an error to the form if the row was changed after the page was opened."""
        cleaned = super().clean() or self.cleaned_data
        row = self.instance
        if self.seen and row.pk is not None and self.seen != row.changed_at.isoformat():
            self.add_error(None, CHANGED % row._meta.verbose_name)
        return cleaned
