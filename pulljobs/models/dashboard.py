"""Model that stands for the dashboard, so that the admin lists it and has a permission for it."""

from django.db import models


class Dashboard(models.Model):
    """Model without a table, for the dashboard's entry in the admin and its permission."""

    class Meta:
        managed = False
        default_permissions = ("view",)
        verbose_name = verbose_name_plural = "dashboard"

    def __str__(self) -> str:
        return "dashboard"
