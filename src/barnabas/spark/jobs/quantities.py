"""Numbers for people: sizes, counts, rates and times as short as they can be read."""

from datetime import UTC, datetime

_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNT_UNITS = ("", "k", "M", "G", "T")
_DURATIONS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))


def size_text(size_bytes: float) -> str:
    """Return a size: 312 B, 4.5 KiB."""
    return _scaled(size_bytes, 1024, _SIZE_UNITS, " ")


def count_text(count: float) -> str:
    """Return a number in three or four digits: 312, 45.6 k, 7.89 M."""
    return _scaled(count, 1000, _COUNT_UNITS, " ").strip()


def _scaled(number: float, step: int, units: tuple[str, ...], gap: str) -> str:
    place = 0
    while abs(number) >= step and place < len(units) - 1:
        number /= step
        place += 1
    if place == 0 and number == int(number):
        return f"{int(number)}{gap}{units[0]}"
    return f"{number:.3g}{gap}{units[place]}" if abs(number) < 1000 else f"{number:.0f}{gap}{units[place]}"


def span_text(duration_ms: int) -> str:
    """Return a duration in its two largest units: 3 d 4 h, 10 min, 450 ms."""
    words: list[str] = []
    left = duration_ms
    for length, unit in _DURATIONS:
        if left >= length and len(words) < 2:
            words.append(f"{left // length} {unit}")
            left %= length
        elif words:
            break
    return " ".join(words) or "0 ms"


def moment_text(timestamp_ms: int, interval_ms: int = 1) -> str:
    """Return a time in UTC, as exactly as an interval asks for; the number itself where no calendar has it."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    if interval_ms >= 86_400_000:
        return f"{moment:%Y-%m-%d}"
    if interval_ms >= 60_000:
        return f"{moment:%Y-%m-%d %H:%M}"
    if interval_ms >= 1000:
        return f"{moment:%Y-%m-%d %H:%M:%S}"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}"


def nice_top(value: int, step: int = 1000) -> int:
    """Return the next number from here on that four round steps lead to, in units of powers of `step`."""
    unit = 1
    while value >= step * unit:
        unit *= step
    power = 1
    while True:
        for first in (4, 8, 12, 20):
            if first * power * unit >= value:
                return first * power * unit
        power *= 10


def share_text(part: float, whole: float) -> str:
    """Return a share in percent: 12 %, 0.3 %."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.0f} %" if share >= 10 or share == 0 else f"{share:.2g} %"
