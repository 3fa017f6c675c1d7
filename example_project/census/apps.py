from django.apps import AppConfig


class CensusConfig(AppConfig):
    name = "example_project.census"
    default_auto_field = "django.db.models.BigAutoField"
