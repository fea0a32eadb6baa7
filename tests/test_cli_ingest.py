"""The command line of ingestion as processes: what it prints, how it ends, and what it leaves behind."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

LINES = "the cat sat\n\nthe dog ran and the cat ran\n"


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "in.txt")


def test_from_text_to_info_and_verify(tmp_path, ooc):
    (tmp_path / "in.txt").write_text(LINES)
    made = ooc("ingest", "text", "--lines", "in.txt", "out", "--workers", 2, "--memory", "1GB")
    assert made.returncode == 0
    assert made.stderr == ""
    assert made.stdout.startswith(
        "out: 3 documents, 6 tokens, vocabulary of 4 words (1 document empty)\n1 block x 1 slice,"
    )
    facts = json.loads(ooc("info", "out", "--json").stdout)
    assert (facts["documents"], facts["empty_documents"], facts["tokens"], facts["vocabulary"]) == (3, 1, 6, 4)
    assert facts["made"]["options"]["lines"] is True
    told = ooc("info", "out").stdout
    assert "documents   3 (1 empty)" in told
    assert "made        from text in.txt by ooc" in told
    assert "no damage found" in ooc("verify", "out").stdout

    again = ooc("ingest", "text", "--lines", "in.txt", "out")
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == "ooc: out already exists\nChoose another name, or replace it with --overwrite.\n"
    appended = ooc("ingest", "text", "--lines", "-", "out", "--append", "--json", input="dog bird dog\n")
    assert json.loads(appended.stdout)["documents"] == 4
    (tmp_path / "out" / "slices-1" / "00000.h5").unlink()
    assert "ooc verify --repair out" in ooc("verify", "out").stderr
    repaired = ooc("verify", "out", "--repair")
    assert (repaired.returncode, "slices-1/00000.h5 again" in repaired.stderr) == (0, True)
    (tmp_path / "out" / "blocks" / "00000.h5").write_bytes(b"")
    damaged = ooc("verify", "out")
    assert damaged.returncode == 1
    assert "00000.h5: 0 bytes, expected" in damaged.stderr.splitlines()[0]
    assert "1 of 2 blocks are undamaged, with 1 of 4 documents" in damaged.stderr
    report = json.loads(ooc("verify", "out", "--json").stdout)
    assert len(report["problems"]) == 1


def test_pipelines_with_compressed_standard_input(tmp_path, ooc):
    data = gzip.compress(b'{"text": ["a", "b"], "id": "x"}\n{"oops\n')
    skipped = ooc("ingest", "jsonl", "-", "out", "--on-error", "skip", input=data, text=False)
    assert skipped.returncode == 0, skipped.stderr
    assert b"skipped 1 bad record, the first: standard input, line 2: not valid JSON" in skipped.stderr
    assert (tmp_path / "out" / "documents.txt").read_text() == "x\n"
    failed = ooc("ingest", "jsonl", "-", "other", input=data[:-9], text=False)
    assert failed.returncode == 2
    assert b"ooc: standard input is truncated or damaged" in failed.stderr
    assert leftovers(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["ingest", "text", "in.txt", "out", "--nonsense"], "No such option: --nonsense"),
        (["ingest", "text", "nowhere.txt", "out"], "nowhere.txt: there is no such file"),
        (["ingest", "uci", "in.txt", "out"], "in.txt, line 1: expected the number of documents, got 'the cat sat'"),
        (["ingest", "csv", "in.txt", "out"], "in.txt has no column 'text'; its columns are 'the cat sat'"),
        (["ingest", "text", "in.txt", "out", "--min-df", "many"], "--min-df: 'many' is not a number"),
        (["ingest", "text", "in.txt", "out", "--memory", "lots"], "--memory: 'lots' is not a size"),
        (["ingest", "text", "in.txt", "out", "--memory", "1MB", "--workers", "1"], "--memory 0MiB is too small"),
        (["info", "nowhere"], "nowhere: there is no such file or directory"),
        (["verify", "nowhere"], "nowhere: there is no such file or directory"),
    ],
)
def test_wrong_requests_end_with_code_2_and_one_line(tmp_path, ooc, arguments, complaint):
    (tmp_path / "in.txt").write_text(LINES)
    ended = ooc(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert complaint in ended.stderr.splitlines()[0]
    assert "Traceback" not in ended.stderr
    assert leftovers(tmp_path) == []


def test_debug_shows_the_traceback(ooc):
    assert "Traceback" in ooc("--debug", "ingest", "text", "nowhere.txt", "out").stderr


def test_help_needs_no_heavy_module(ooc):
    code = "import sys, ooc.cli.app\nassert not {'numpy', 'numba', 'h5py', 'rich', 'tqdm'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    # The main process of ingestion leaves the kernels to its workers.
    code = "import sys, blocks.corpus.ingestion\nassert not {'numba', 'h5py', 'scipy'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    shown = ooc("--help")
    assert shown.returncode == 0
    assert "ingest" in shown.stdout


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_ingestion_leaves_nothing(tmp_path, number):
    command = [sys.executable, "-m", "ooc", "ingest", "text", "--lines", "-", "out", "--workers", "2"]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b"a line of words\n" * 1_000_000)
    process.stdin.flush()
    children: list[psutil.Process] = []
    while len(children) < 3 and process.poll() is None:  # the workers and the process they were forked from
        children = psutil.Process(process.pid).children(recursive=True)
        time.sleep(0.02)
    process.send_signal(number)
    assert process.wait(30) == 130
    assert process.stderr.read() == b"ooc: interrupted\n"
    process.stdin.close()
    process.stderr.close()
    assert list(tmp_path.iterdir()) == []
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


@pytest.mark.parametrize("where", ["lost()", "exec('here()')"])
def test_an_interrupt_is_neither_lost_nor_changed(tmp_path, where):
    """Python drops exceptions of finalisers, and ends by a signal if a KeyboardInterrupt ever left an `exec`."""
    (tmp_path / "waiting.py").write_text(f"""
import signal, time
from ooc.cli.app import app, run

def here():
    signal.raise_signal(signal.SIGINT)

class lost:
    def __del__(self):
        here()

@app.command()
def wait():
    {where}
    time.sleep(20)

run()
""")
    command = [sys.executable, "-m", "waiting", "wait"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "ooc: interrupted\n")


def test_an_ignored_interrupt_stays_ignored(tmp_path):
    """As a script has it ignored in what it runs in the background."""
    (tmp_path / "heedless.py").write_text("""
import signal
from ooc.cli.app import app, run

@app.command()
def go():
    signal.raise_signal(signal.SIGINT)

run()
""")
    command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", sys.executable, "-m", "heedless", "go"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.long
def test_what_a_killed_ingestion_left_is_removed_by_the_next(tmp_path, ooc):
    (tmp_path / "in.txt").write_text(LINES)
    command = [sys.executable, "-m", "ooc", "ingest", "text", "--lines", "-", "out", "--workers", "1"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE) as process:
        while not any(name.startswith(".out") for name in leftovers(tmp_path)):
            time.sleep(0.02)
        # The other process still lives, so its files are left alone.
        assert ooc("ingest", "text", "--lines", "in.txt", "out", "--workers", 1).returncode == 0
        assert len(leftovers(tmp_path)) == 2
        process.kill()
    assert ooc("ingest", "text", "--lines", "in.txt", "out", "--workers", 1, "--overwrite").returncode == 0
    assert leftovers(tmp_path) == ["out"]


def test_a_worker_that_is_killed_is_named_and_leaves_nothing(tmp_path):
    command = [sys.executable, "-m", "ooc", "ingest", "text", "--lines", "-", "out", "--workers", "2"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        workers: list[psutil.Process] = []
        while len(workers) < 2 and process.poll() is None:
            below = psutil.Process(process.pid).children()
            workers = below[0].children() if below else []
            time.sleep(0.02)
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(b"a line of words\n" * 500_000)
            process.stdin.close()
        assert process.wait(30) == 1
        assert b"killed by SIGKILL" in process.stderr.read()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_permission(tmp_path, ooc):
    (tmp_path / "in.txt").write_text(LINES)
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if os.access(locked, os.W_OK):
        pytest.skip("this user may write everywhere: permissions are not enforced")
    ended = ooc("ingest", "text", "--lines", "in.txt", "locked/out")
    assert ended.returncode == 2
    assert "no permission to write" in ended.stderr


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, ooc):
    (tmp_path / "in.txt").write_text(LINES * 200_000)
    limited = ["bash", "-c", f"ulimit -f 1000; exec {sys.executable} -m ooc ingest text --lines in.txt out"]
    ended = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900)
    assert ended.returncode == 1
    assert "File too large" in ended.stderr
    assert leftovers(tmp_path) == []
