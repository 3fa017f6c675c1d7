"""Times that fields of models write by themselves."""

from datetime import timedelta

from django.utils import timezone

from pulljobs.models import Channel


def test_a_new_row_was_not_changed_in_the_future_however_often_its_value_is_asked_for() -> None:
    """The second of two calls of `pre_save`, as in Django 6.1, sets no time in the future."""
    field = Channel._meta.get_field("changed_at")
    channel = Channel(name="orders")
    assert field.pre_save(channel, add=True) <= field.pre_save(channel, add=True)
    assert channel.changed_at <= timezone.now()


def test_a_row_that_is_saved_again_changes_in_a_later_second() -> None:
    field = Channel._meta.get_field("changed_at")
    channel = Channel(name="orders", changed_at=timezone.now())
    before = channel.changed_at.replace(microsecond=0)
    assert field.pre_save(channel, add=False) >= before + timedelta(seconds=1)
