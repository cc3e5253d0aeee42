"""The command as it is installed: help, bad words, broken pipes, full disks, odd terminals."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli.main import COMMANDS, main

BARNABAS = str(Path(sys.executable).parent / "barnabas")


def run(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the installed script as a newcomer would."""
    return subprocess.run(
        [BARNABAS, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def shell(script: str, *words: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of bash, with the words as $1, $2, ..."""
    command = ["bash", "-c", script, BARNABAS, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_help_names_every_command_and_shows_examples() -> None:
    done = run("--help")
    assert done.returncode == 0
    for name, sentence in COMMANDS.items():
        assert name in done.stdout
        assert sentence in " ".join(done.stdout.split())
        assert f"  barnabas {name} " in done.stdout


def test_help_says_what_it_is() -> None:
    said = " ".join(run("--help").stdout.split())
    assert "A log broker in Python that every Kafka client speaks to" in said
    assert "serve run a broker" in said


def test_the_version_is_that_of_the_package() -> None:
    done = run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"barnabas {importlib.metadata.version('barnabas')}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_shows_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "examples:" in said
    assert said.count(f"  barnabas {command} ") >= 3


@pytest.mark.parametrize("words", [[], ["dumb"], ["dump"], ["verify"], ["dump", "--colour", "x.log"]])
def test_bad_words_are_answered_with_the_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: barnabas")


def test_the_installed_script_dumps_and_verifies(data_dir: Path) -> None:
    done = run("dump", data_dir / "replication-offset-checkpoint")
    assert (done.returncode, done.stderr) == (0, "")
    assert "topic payments  partition 0  offset 11" in done.stdout
    done = run("verify", data_dir)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["dump --records", "dump --json", "verify"])
def test_a_reader_that_has_seen_enough_ends_the_command_quietly(orders: Path, command: str) -> None:
    files = sorted(orders.glob("*.log")) * 200 if command != "verify" else [orders] * 2
    # Faults, so that there is something to print as well.
    (orders / "leader-epoch-checkpoint").write_text("garbage")
    done = shell(f'"$0" {command} "$@" | head -n 1; echo "codes ${{PIPESTATUS[*]}}"', *files)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 2
    if command != "verify":
        assert done.stdout.endswith("codes 0 0\n")


def test_a_closed_pipe_is_no_fault_of_the_file(orders: Path) -> None:
    done = shell('"$0" dump --records "$@" | true; echo "codes ${PIPESTATUS[*]}"', *sorted(orders.glob("*.log")))
    assert (done.stdout, done.stderr) == ("codes 0 0\n", "")


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_output_that_can_not_be_written_is_one_sentence(orders: Path, command: str) -> None:
    target = orders if command == "verify" else orders / "leader-epoch-checkpoint"
    done = shell(f'"$0" {command} "$1" > /dev/full', target)
    assert done.returncode == 1
    assert done.stderr == f"barnabas {command}: [Errno 28] No space left on device\n"


def test_records_are_shown_in_a_terminal_without_their_letters(payments: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n1\nключ 0 5\n", encoding="utf-8")
    done = run("dump", checkpoint, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "topic \\u043a\\u043b\\u044e\\u0447  partition 0  offset 5" in done.stdout


def test_an_interrupted_command_says_so_by_its_exit_code(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("barnabas.cli.verify.run", interrupted)
    assert main(["verify", str(data_dir)]) == 130


def test_starting_imports_only_the_command_that_is_asked_for() -> None:
    program = "import sys; sys.argv[1:] = ['--help']; from barnabas.cli.main import main\ntry: main()\nfinally: "
    program += "print(sorted(name for name in sys.modules if name.startswith('barnabas.')), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "['barnabas.cli', 'barnabas.cli.main']"
