"""Parser of a configuration file of the webhook-broker, for `manage.py pulljobs loadbroker`.

The webhook-broker is the program that defined the broker protocol. Its INI file lists channels,
producers and consumers.
"""

from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from configparser import Error as ParserError
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from pulljobs.errors import ConfigurationError
from pulljobs.rates import MOST

MAX_RETRIES: Final = 255
TRUTHS: Final = {"true": True, "false": False, "": False}
MARGIN: Final = timedelta(seconds=0.25)
"""Time by which the webhook-broker's stop timeout exceeds its connection timeout."""
RATIONAL_DELAY: Final = 2
CONNECTION_TIMEOUT: Final = 30
A_YEAR: Final = 365 * 86_400
REPLACEMENTS: Final[Mapping[str, str]] = {
    "rdbms": "DATABASES",
    "http": "your web server",
    "log": "LOGGING",
    "scheduler": "PULLJOBS['MIN_SCHEDULE_DELAY']",
    "dlq": "/job-status, which counts dead jobs when it is requested",
    "prune": "PULLJOBS['RETENTION']",
    "gateway-auth": "PULLJOBS['GATEWAY_SECRETS']",
}
"""Replacement in a Django project for each section that does not create rows."""
SETTINGS: Final[Mapping[str, str]] = {
    "max_retries": "PROTOCOL_MAX_RETRIES",
    "retry_strategy": "PROTOCOL_RETRY_STRATEGY",
    "protocol_lease_duration": "PROTOCOL_LEASE",
}
"""Key of PULLJOBS by the consumer's field whose value the broker has for all consumers."""
USED_SECTIONS: Final = {
    "broker",
    "consumer-connection",
    "initial-channels",
    "initial-channel-tokens",
    "initial-producers",
    "initial-producer-tokens",
    "initial-consumers",
}


class BrokerEntry(NamedTuple):
    """Channel, producer or consumer of the file. `channel` is the id of a consumer's channel."""

    id: str
    fields: dict[str, Any]
    channel: str = ""


@dataclass
class BrokerFile:
    """Parsed file: the rows to create, and sentences about all that can't be used."""

    channels: list[BrokerEntry] = field(default_factory=list)
    producers: list[BrokerEntry] = field(default_factory=list)
    consumers: list[BrokerEntry] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Sentence for each entry that cannot be used."""
    elsewhere: list[str] = field(default_factory=list)
    """Sentence for each other section, and advice on settings of PULLJOBS."""


def read_broker_file(path: Path) -> BrokerFile:
    """Read a file, or raise `ConfigurationError` if it cannot be read or parsed."""
    parser = ConfigParser(
        interpolation=None,
        strict=False,
        allow_no_value=True,
        inline_comment_prefixes=("#", ";"),
        default_section="",
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # ids are case-sensitive
    try:
        parser.read_string(path.read_text("utf-8"), str(path))
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}.") from error
    except (UnicodeDecodeError, ParserError) as error:
        raise ConfigurationError(f"{path} can't be read: {error}") from error
    sections = {
        name: {key: _unquoted(value or "") for key, value in parser.items(name)}
        for name in parser.sections()
    }
    return _BrokerFileReader(sections).file


class _BrokerFileReader:
    def __init__(self, sections: dict[str, dict[str, str]]) -> None:
        self.file, self._sections = BrokerFile(), sections
        self.file.channels = list(self._token_holders("channel"))
        self.file.producers = list(self._token_holders("producer"))
        self._retries = dict(self._shared_fields())
        self.file.consumers = list(self._consumers())
        known = {*USED_SECTIONS, *self._section("initial-consumers")}
        for name in sections:
            if name not in known:
                replacement = REPLACEMENTS.get(name)
                text = f"see {replacement}" if replacement else "it has no counterpart"
                self.file.elsewhere.append(f"[{name}]: {text}.")
        self.file.elsewhere += self._settings()

    def _settings(self) -> Iterator[str]:
        """Yield advice on settings of PULLJOBS, for values that the file has for all consumers.

        `loadbroker` writes these values to its consumers. Consumers that a PUT request creates
        later get theirs from the settings.
        """
        for name, setting in SETTINGS.items():
            if name in self._retries:
                value = f"PULLJOBS[{setting!r}] = {self._retries[name]!r}".replace("datetime.", "")
                yield f"{name.replace('_', ' ')} of consumers that a PUT creates: set {value}."

    def _section(self, name: str) -> dict[str, str]:
        return self._sections.get(name, {})

    def _token_holders(self, kind: str) -> Iterator[BrokerEntry]:
        tokens = self._section(f"initial-{kind}-tokens")
        for id, name in self._section(f"initial-{kind}s").items():
            if tokens.get(id):
                title = "" if name == id else name
                yield BrokerEntry(id, {"title": title, "token": tokens[id]})
            else:
                self._skip(f"{kind} {id}", f"it has no token in [initial-{kind}-tokens]")

    def _consumers(self) -> Iterator[BrokerEntry]:
        for id, url in self._section("initial-consumers").items():
            own = self._sections.get(id)
            if own is None:
                self._skip(f"consumer {id}", f"there is no section [{id}]")
            elif not own.get("token"):
                self._skip(f"consumer {id}", f"it has no token in [{id}]")
            else:
                fields = {"token": own["token"], "type": own.get("type") or "push"}
                fields |= {"title": "", "callback_url": url, **self._retries}
                fields |= self._limit_fields(id)
                yield BrokerEntry(id, fields, own.get("channel", ""))

    def _shared_fields(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, value) of each field of consumers that the file sets for all of them."""
        retries = self._number("broker", "max-retry", MAX_RETRIES)
        if retries is not None:
            yield "max_retries", retries
        delays = self._numbers("broker", "retry-backoff-delays-in-seconds")
        if delays:
            yield "retry_strategy", ",".join(map(str, delays))
        rational = self._number("broker", "rational-delay-in-seconds")
        timeout = self._number("consumer-connection", "connection-timeout-in-seconds")
        if rational is not None or timeout is not None:
            seconds = (RATIONAL_DELAY if rational is None else rational) + (
                CONNECTION_TIMEOUT if timeout is None else timeout
            )
            yield "protocol_lease_duration", timedelta(seconds=seconds) + MARGIN

    def _limit_fields(self, id: str) -> dict[str, Any]:
        """Return the limits in a consumer's section, by name of the field.

        Missing limits are left out: a known consumer keeps them. An empty rate resets its options.
        """
        section = self._section(id)
        rate = section.get("rate")
        fields: dict[str, Any] = {} if rate is None else {"rate": rate}
        if rate == "":
            fields |= {"rate_burst": None, "rate_window": False, "rate_per_key": False}
        for name in ("rate_burst", "max_in_flight", "max_in_flight_per_key"):
            if (number := self._number(id, name.replace("_", "-"), MOST)) is not None:
                fields[name] = number
        truths = ("fair_by_key",) if rate == "" else ("rate_window", "rate_per_key", "fair_by_key")
        for name in truths:
            if (text := section.get(name.replace("_", "-"))) is not None:
                fields |= self._truth_field(id, name, text)
        if "limit-group" in section:
            fields["limit_group"] = section["limit-group"] or None
        return fields

    def _truth_field(self, id: str, name: str, text: str) -> dict[str, bool]:
        if text in TRUTHS:
            return {name: TRUTHS[text]}
        key = name.replace("_", "-")
        self._skip(f"[{id}] {key}", f"{text!r} is neither true nor false")
        return {}

    def _number(self, section: str, key: str, highest: int = A_YEAR) -> int | None:
        """Return the whole number of an entry, or None if it is missing or invalid.

        An invalid one is added to `file.skipped`.
        """
        return next(iter(self._numbers(section, key, highest)), None)

    def _numbers(self, section: str, key: str, highest: int = A_YEAR) -> list[int]:
        numbers = []
        for text in filter(None, map(str.strip, self._section(section).get(key, "").split(","))):
            if text.isdecimal() and len(text) < 9 and int(text) <= highest:
                numbers.append(int(text))
            else:
                self._skip(f"[{section}] {key}", f"{text!r} is no whole number up to {highest}")
        return numbers

    def _skip(self, entry: str, reason: str) -> None:
        self.file.skipped.append(f"{entry}: {reason}.")


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'`"
    return text[1:-1] if quoted else text
