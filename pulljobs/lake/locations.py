"""Locations of the lake: a directory, or a URL of an object store."""

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from pulljobs.errors import ConfigurationError

ALIASES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
"""Other names of a scheme, as Spark or its connectors call it."""
SCHEMES: Final = ("s3", "gs", "abfss", "abfs", "az", "hdfs")
ENVIRONMENT: Final = ("AWS_", "GOOGLE_", "AZURE_")
"""Prefixes of the environment variables from which the object store reads credentials."""
RETRIES: Final = {"max_retries": "3", "retry_timeout": "30s"}
"""Bounds of the object store's own retries, which otherwise take three minutes."""
BROKEN_URL: Final = re.compile(rf"(?:{'|'.join((*SCHEMES, *ALIASES))})(?::|//)", re.IGNORECASE)
"""Begin of a URL with a typing error, which would otherwise become a directory."""


def normalize_location(setting: str) -> str:
    """Return the one form of a location: an absolute directory, or a URL without end slash.

    Raise ConfigurationError for a URL that no lake can be at.
    """
    if not setting:
        return ""
    if setting.startswith("file:"):
        return os.path.abspath("/" + unquote(setting.removeprefix("file:")).lstrip("/"))
    scheme, separator, rest = setting.partition("://")
    if not separator:
        if BROKEN_URL.match(setting):
            raise ConfigurationError(_describe_choices(setting))
        return os.path.abspath(setting)
    scheme = ALIASES.get(scheme.lower(), scheme.lower())
    if scheme not in SCHEMES or not rest.strip("/"):
        raise ConfigurationError(_describe_choices(setting))
    return f"{scheme}://{rest.rstrip('/')}"


def is_url(location: str) -> bool:
    """Return True for a URL, False for a directory."""
    return "://" in location


def choose_storage_options(location: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return options of the object store in addition to those that it reads from the environment.

    A server whose address begins with `http://` was chosen deliberately, so it may be used.
    """
    if not is_url(location):
        return {}
    endpoints = (name for name in environment if "ENDPOINT" in name and name.startswith("A"))
    is_plain = any(environment[name].startswith("http://") for name in endpoints)
    return {**RETRIES, "allow_http": "true"} if is_plain else dict(RETRIES)


def choose_hadoop_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return options of Hadoop's filesystem for S3, with which it behaves like the object store.

    Spark itself passes on the keys and the address of the server. Another server than Amazon's has
    its buckets in the path of a URL.
    """
    options = {}
    if "AWS_ENDPOINT_URL" in environment:
        options["fs.s3a.path.style.access"] = "true"
    if region := environment.get("AWS_REGION"):
        options["fs.s3a.endpoint.region"] = region
    return options


def select_credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that processes of Spark on other machines need for the lake."""
    return {name: value for name, value in environment.items() if name.startswith(ENVIRONMENT)}


def _describe_choices(setting: str) -> str:
    return (
        f"PULLJOBS['LAKE'] is {setting!r}: set it to a directory or to a URL such as "
        f"s3://bucket/lake; the schemes are {', '.join(SCHEMES)}."
    )
