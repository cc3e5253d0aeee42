"""Runs the sections named on the command line, or all of them.

Each prints a table and writes bench/results/<section>.json.

The exit code is 1 when a section does not exist, or when a figure misses its floor.
"""

import importlib
import json
import pkgutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from bench import sections
from bench.measurement import Measurement, StolenTime, machine_facts

RESULTS = Path(__file__).parent / "results"


def section_names() -> list[str]:
    """The modules of bench/sections, in order."""
    return sorted(module.name for module in pkgutil.iter_modules(sections.__path__))


def markdown_table(measurements: Sequence[Measurement]) -> str:
    """The figures as people read them."""
    verdicts = {True: "yes", False: "NO", None: ""}
    lines = ["| what | value | unit | floor | holds | note |", "|---|---:|---|---:|---|---|"]
    for measurement in measurements:
        floor = ""
        if measurement.floor is not None:
            floor = f"{'<=' if measurement.lower_is_better else '>='} {measurement.floor:,.4g}"
        cells = [
            measurement.name,
            f"{measurement.value:,.4g}",
            measurement.unit,
            floor,
            verdicts[measurement.holds],
            measurement.note,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def run_section(name: str) -> list[Measurement]:
    """Measures one section, prints its table and keeps its figures."""
    module = importlib.import_module(f"bench.sections.{name}")
    title = (module.__doc__ or name).strip().splitlines()[0]
    print(f"\n## {name}: {title}\n", flush=True)
    others = StolenTime()
    measurements = list(module.run())
    taken = others.measurement()
    if taken is not None:
        measurements.append(taken)
    print(markdown_table(measurements), flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    report = {
        "section": name,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "measurements": [{**asdict(measurement), "holds": measurement.holds} for measurement in measurements],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return measurements


def main(arguments: Sequence[str]) -> int:
    """Runs what is asked for; 0 when every floor holds."""
    known = section_names()
    unknown = [name for name in arguments if name not in known]
    if unknown:
        print(
            f"bench: there is no section {', '.join(unknown)}; there are: {', '.join(known) or 'none'}", file=sys.stderr
        )
        return 1
    facts = ", ".join(f"{name} {value}" for name, value in machine_facts().items())
    print(f"# Barnabas, measured on: {facts}")
    missed = []
    for name in arguments or known:
        missed += [m.name for m in run_section(name) if m.holds is False]
    if missed:
        print(f"\nbench: below the floor: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
