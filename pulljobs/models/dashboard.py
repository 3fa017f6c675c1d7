"""A page of the admin that has no rows of its own."""

from django.db import models


class Dashboard(models.Model):
    """No table: it has the page listed among the models, and a permission to see it."""

    class Meta:
        managed = False
        default_permissions = ("view",)
        verbose_name = verbose_name_plural = "dashboard"

    def __str__(self) -> str:
        return "dashboard"
