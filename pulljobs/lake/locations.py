"""Locations of the lake: a directory, or a URL of an object store."""

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from pulljobs.errors import ConfigurationError

ALIASES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
"""Schemes of the lake by other names, which Spark or its connectors use."""
SCHEMES: Final = ("s3", "gs", "abfss", "abfs", "az", "hdfs")
ENVIRONMENT: Final = ("AWS_", "GOOGLE_", "AZURE_")
"""Prefixes of the environment variables from which the object store reads credentials."""
RETRIES: Final = {"max_retries": "3", "retry_timeout": "30s"}
"""Bounds of the object store's own retries, which otherwise take three minutes."""
BROKEN_URL: Final = re.compile(rf"(?:{'|'.join((*SCHEMES, *ALIASES))})(?::|//)", re.IGNORECASE)
"""Pattern of a URL with a typing error such as `s3:/lake`, which would pass for a directory."""


def normalize_location(setting: str) -> str:
    """Return the normal form of the setting: an absolute path, or a URL without end slash.

    The result is empty for an empty setting, which means that there is no lake. Raise
    ConfigurationError for a wrong URL, such as one without a bucket, and for a path below `~`.
    """
    if not setting:
        return ""
    if setting.lower().startswith("file:"):
        return _find_directory(setting)
    scheme, separator, rest = setting.partition("://")
    if not separator:
        if BROKEN_URL.match(setting) or setting.startswith("~"):
            raise ConfigurationError(_describe_choices(setting))
        return os.path.abspath(setting)
    scheme = ALIASES.get(scheme.lower(), scheme.lower())
    if scheme not in SCHEMES or not rest.strip("/"):
        raise ConfigurationError(_describe_choices(setting))
    return f"{scheme}://{rest.rstrip('/')}"


def _find_directory(url: str) -> str:
    """Return the directory that a URL such as `file:///srv/lake` names.

    Raise ConfigurationError if the URL names another machine, or no absolute path.
    """
    parts = urlsplit(url.replace("?", "%3F").replace("#", "%23"))
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ConfigurationError(_describe_choices(url))
    return os.path.abspath("/" + unquote(parts.path).lstrip("/"))


def is_url(location: str) -> bool:
    """Return True if the location is a URL, False if it is a directory."""
    return "://" in location


def choose_storage_options(location: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return options for the Delta library's access to the lake, which are empty for a directory.

    The library takes other options from the environment by itself. If the address of the object
    store there begins with `http://`, the result allows a connection without encryption.
    """
    if not is_url(location):
        return {}
    endpoints = (name for name in environment if "ENDPOINT" in name and name.startswith("A"))
    is_plain = any(environment[name].startswith("http://") for name in endpoints)
    return {**RETRIES, "allow_http": "true"} if is_plain else dict(RETRIES)


def choose_hadoop_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return options with which Spark's own S3 client reads the same buckets as the export.

    Spark passes on keys and address from the environment by itself. It does not pass on the region,
    nor that a server other than Amazon's expects the bucket in the path of a URL.
    """
    options = {}
    if "AWS_ENDPOINT_URL" in environment:
        options["fs.s3a.path.style.access"] = "true"
    if region := environment.get("AWS_REGION"):
        options["fs.s3a.endpoint.region"] = region
    return options


def select_credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Spark's executors on other machines need for the lake."""
    return {name: value for name, value in environment.items() if name.startswith(ENVIRONMENT)}


def _describe_choices(setting: str) -> str:
    return (
        f"PULLJOBS['LAKE'] is {setting!r}: set it to a directory or to a URL such as "
        f"s3://bucket/lake; the schemes are {', '.join(SCHEMES)}."
    )
