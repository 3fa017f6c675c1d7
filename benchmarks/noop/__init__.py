"""Django app with a handler that does nothing."""

urlpatterns: list[object] = []
