"""`python -m checker --minutes 3`: run again and again, and report what was done and what was found.

A third of the time goes to rounds of producers, consumers and transactions, each with a broker of its own; the rest to
one long run with topics that are compacted, retained, cut and deleted, whose memory, file handles, threads and disk are
measured every second. Its report is a page, whose path is printed at the end.

The exit code is 1 when something was found; the folder with histories and data is then kept, and named. With --seed a
run is repeated: the same settings, faults and choices. With --history a history is analysed once more.
"""

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from barnabas.clock import SystemClock
from checker.analysis import analyse, fault_counts, operation_counts
from checker.care.run import CareResult, run_care
from checker.history import Operation, read_history
from checker.model import Finding
from checker.run import run, settings_for

ROUND_S = 45.0
SHOWN_MAX = 5


def report(operations: Sequence[Operation], findings: Sequence[Finding]) -> str:
    """What was done, and what was found."""
    lines = [f"  {kind:<12} {counts}" for kind, counts in operation_counts(operations).items()]
    faults = ", ".join(f"{count} x {action}" for action, count in fault_counts(operations).most_common())
    lines.append(f"  faults       {faults or 'none'}")
    kinds = Counter(finding.kind for finding in findings)
    lines.append(f"  findings     {', '.join(f'{count} x {kind}' for kind, count in kinds.items()) or 'none'}")
    # One fault may show in thousands of records, so some of every kind are shown, and first the kind with the fewest.
    for kind, count in reversed(kinds.most_common()):
        shown = [finding.sentence for finding in findings if finding.kind == kind][:SHOWN_MAX]
        lines += [f"    {kind}: {sentence}" for sentence in shown]
        if count > len(shown):
            lines.append(f"    {kind}: and {count - len(shown)} more")
    return "\n".join(lines)


def soak(minutes: float, seed: int, folder: Path) -> int:
    """Run rounds, each with a seed of its own, until the time is over; returns the number of findings."""
    clock = SystemClock()
    ends_at = clock.monotonic_seconds() + minutes * 60
    count = 0
    for number in range(sys.maxsize):
        seconds = min(ROUND_S, ends_at - clock.monotonic_seconds())
        if number and seconds < ROUND_S / 3:
            break
        round_seed = seed + number
        round_folder = folder / f"seed-{round_seed}"
        round_folder.mkdir(parents=True)
        chosen = ", ".join(f"{name}={value}" for name, value in settings_for(round_seed).items())
        print(f"\nseed {round_seed}, {seconds:.0f} s of faults ({chosen})", flush=True)
        result = run(round_seed, seconds, round_folder)
        print(report(result.operations, result.findings), flush=True)
        print(f"  history      {result.history}", flush=True)
        count += len(result.findings)
        if not result.findings:
            shutil.rmtree(round_folder / "data")
    return count


def soak_care(minutes: float, seed: int, folder: Path) -> int:
    """Do the long run; returns the number of findings."""
    care_folder = folder / "care"
    care_folder.mkdir(parents=True)
    print(f"\nseed {seed}, {minutes * 60:.0f} s of compaction, retention, deletion and restarts", flush=True)
    result = run_care(seed, minutes * 60, care_folder)
    print(care_report(result), flush=True)
    if not result.findings:
        shutil.rmtree(care_folder / "data")
    return len(result.findings)


def care_report(result: CareResult) -> str:
    """What was done in the long run, what was measured, and what was found."""
    lines = [f"  {name:<28} {count:,}" for name, count in sorted(result.counts.items())]
    faults = ", ".join(f"{count} x {action}" for action, count in result.faults.most_common())
    lines.append(f"  {'faults':<28} {faults or 'none'}")
    lines += [f"  {'level' if level.is_level else 'GREW':<6} {level}" for level in result.levels]
    kinds = Counter(finding.kind for finding in result.findings)
    lines.append(f"  findings     {', '.join(f'{count} x {kind}' for kind, count in kinds.items()) or 'none'}")
    lines += [f"    {finding.kind}: {finding.sentence}" for finding in result.findings[: 4 * SHOWN_MAX]]
    lines.append(f"  report       {result.page}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Soak, or look at a history again."""
    parser = argparse.ArgumentParser(prog="checker", description="Load a broker, do harm to it, and check its answers.")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long, all rounds together")
    parser.add_argument("--seed", type=int, help="the seed of the first round")
    parser.add_argument("--folder", type=Path, help="where histories and data go; a temporary folder otherwise")
    parser.add_argument("--history", type=Path, help="analyse this history and run nothing")
    options = parser.parse_args(arguments)
    if options.history is not None:
        operations = read_history(options.history)
        findings = analyse(operations)
        print(report(operations, findings))
        return 1 if findings else 0
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    folder = options.folder or Path(tempfile.mkdtemp(prefix="barnabas-soak-"))
    count = soak(options.minutes / 3, seed, folder)
    count += soak_care(options.minutes * 2 / 3, seed, folder)
    print(f"\n{count} findings" if count else "\nnothing was found", flush=True)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
