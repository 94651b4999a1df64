"""Times, durations and texts as the API writes them."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import Any

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")


def seconds(text: str) -> float:
    """The seconds of an exact ISO 8601 duration such as ``PT1H30M``."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError(f"`{text}` is not a duration; it is written as `PT5S`")
    days, hours, minutes, rest = (float(part or 0) for part in found.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + rest


def duration(length: float) -> str:
    """Seconds as an ISO 8601 duration of whole milliseconds, at least one."""
    millis = max(1, round(length * 1000))
    whole, rest = divmod(millis, 1000)
    return f"PT{whole}.{rest:03}S" if rest else f"PT{whole}S"


def read_time(text: str) -> datetime:
    """An RFC 3339 time, in UTC; what is finer than a microsecond is cut off."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"`{text}` is not a time; it is written as `2026-11-18T09:00:00Z`")
    base, fraction, zone = found.groups()
    micros = (fraction or "")[:6].ljust(6, "0")
    offset = "+00:00" if zone == "Z" else zone
    return datetime.fromisoformat(f"{base}.{micros}{offset}").astimezone(timezone.utc)


def write_time(time: datetime) -> str:
    """A time as RFC 3339 in UTC."""
    return time.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")


def to_json(value: Any) -> str:
    """JSON in as few bytes as there can be; ``NaN`` and infinity are refused, JSON has none."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def shorten(text: str, most: int) -> str:
    """At most so many bytes of UTF-8, cut between characters."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= most else data[:most].decode("utf-8", "ignore")
