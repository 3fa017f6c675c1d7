"""The dashboard as a model, so that the admin lists it and has a permission for it."""

from django.db import models


class Dashboard(models.Model):
    """Model without a table for the page of the admin and its permission."""

    class Meta:
        managed = False
        default_permissions = ("view",)
        verbose_name = verbose_name_plural = "dashboard"

    def __str__(self) -> str:
        return "dashboard"
