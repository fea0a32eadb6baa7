"""examples/pipelines: days come one after the other, steps are killed and done again, and the files are the same."""

from __future__ import annotations

import configparser
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import orjson
import pytest
from conftest import Ooc
from corpora import model_bytes, tree
from launches import shards_of
from long_mark import long_but
from rings import on_ring

from benchmarks.sshd import free_port
from samplers.lda.training import train_lda

PIPELINES = Path(__file__).resolve().parent.parent / "examples" / "pipelines"
WORDS = (["apple", "pear", "plum", "fruit", "cherry"], ["goal", "team", "ball", "match", "league"])
MONDAY, TUESDAY, WEDNESDAY = "2024-05-06", "2024-05-07", "2024-05-08"
TOOLS = {
    "make": ("Makefile", ["make"], []),
    "snakemake": (
        "Snakefile",
        ["snakemake", "--cores", "1", "--rerun-incomplete"],
        ["snakemake", "--cores", "1", "--unlock"],
    ),
}
FIRST_COMMANDS = {"ingest": 3, "train": 1, "infer": 2}  # how many a pipeline calls that has two days
OOC = """#!/bin/sh
# Notes what is called; the process group is killed at call FAILING_FROM that changes files in a command named $KILLED.
echo "$*" >> "$CALLED"
export FAILING_COUNTER="$CALLED.$1"
: >> "$FAILING_COUNTER"
[ "$1" = "$KILLED" ] || FAILING_FROM=0
LD_PRELOAD="$FAILING_DISK" exec "$PYTHON" -m ooc "$@"
"""


def path_of(*directories: Path) -> str:
    """PATH with directories, and the one of this environment's programs, before all others."""
    return os.pathsep.join(map(str, (*directories, Path(sys.executable).parent, os.environ["PATH"])))


def add_program(directory: Path, name: str, text: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text)
    (directory / name).chmod(0o755)


def write_day(place: Path, day: str) -> None:
    """Documents that came on a day, in a file that is older than all others."""
    draw, file = random.Random(day), place / "days" / f"{day}.jsonl"
    texts = [" ".join(draw.choices(draw.choice(WORDS), k=20)) for _ in range(60)]
    documents = [{"id": f"{day}/{number}", "text": text} for number, text in enumerate(texts)]
    file.write_bytes(b"".join(orjson.dumps(document) + b"\n" for document in documents))
    os.utime(file, (0, 0))


class PipelineExample:
    """An example in a directory of its own, with the documents of Monday and Tuesday."""

    def __init__(self, root: Path, tool: str, failing_disk: Path) -> None:
        example, self._command, self._after_kill = TOOLS[tool]
        self.place, self._called = root / "place", root / "called"
        (self.place / "days").mkdir(parents=True)
        for name in (example, "pipeline.toml"):
            shutil.copy(PIPELINES / name, self.place)
        for day in (MONDAY, TUESDAY):
            write_day(self.place, day)
        add_program(root / "bin", "ooc", OOC)
        self._environment = {
            **os.environ,
            **{"OOC_WORKERS": "1", "OOC_TOPICS": "3", "OOC_ITERATIONS": "30", "PYTHON": sys.executable},
            **{"FAILING_BELOW": str(self.place), "FAILING_KILL": "yes", "FAILING_DISK": str(failing_disk)},
            **{"PATH": path_of(root / "bin"), "CALLED": str(self._called)},
        }

    def run(self, killed: str = "", call: int = 0) -> list[str]:
        """Return the commands of ooc that it has called. killed: it ends in this command, at this call."""
        for file in self._called.parent.glob("called*"):
            file.unlink()
        done = self._started(self._command, KILLED=killed, FAILING_FROM=str(call))
        assert done.returncode == (-signal.SIGKILL if killed else 0), done.stderr
        if killed and self._after_kill:
            assert self._started(self._after_kill).returncode == 0
        return self._called.read_text().splitlines() if self._called.exists() else []

    def _started(self, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
        environment = self._environment | variables
        return subprocess.run(
            command,
            cwd=self.place,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )

    def middle(self, command: str) -> int:
        """The call in the middle of the first command of that name, in a run that has just been the first."""
        return self._called.with_name(f"called.{command}").stat().st_size // FIRST_COMMANDS[command] // 2

    def files(self, *names: str) -> dict[str, bytes]:
        """What does not depend on time; runs note themselves in their dataset, with where they are."""
        found = {f"{name}/{file}": data for name in names for file, data in tree(self.place / name).items()}
        return {file: data for file, data in found.items() if not file.startswith("corpus/runs/")}


@pytest.fixture(params=long_but(["make"], TOOLS))
def pipeline(
    request: pytest.FixtureRequest, tmp_path: Path, preloaded: Callable[[str], Path]
) -> Callable[..., PipelineExample]:
    """Make the example for a program, in a directory of that name."""
    if shutil.which(request.param, path=path_of()) is None:
        pytest.skip(f"there is no {request.param} to run examples/pipelines/{TOOLS[request.param][0]}")
    return lambda name: PipelineExample(tmp_path / name, request.param, preloaded("failing_disk"))


def outputs(commands: Iterable[str]) -> list[str]:
    """What commands of ooc are about, shortly: the words that are neither options nor inputs."""
    kinds = ("ingest", "train", "resume", "infer", "report", "corpus", "run", "new/", "topics/")
    return [" ".join(word for word in command.split() if word.startswith(kinds)) for command in commands]


@pytest.mark.long
def test_only_what_is_new_is_done_and_what_is_killed_is_done_again(pipeline: Callable[..., PipelineExample]) -> None:
    straight, results = pipeline("straight"), ("corpus", "run/model", "topics")
    assert len(straight.run()) == sum(FIRST_COMMANDS.values()) + 1
    middle = {command: straight.middle(command) for command in FIRST_COMMANDS}
    first = straight.files("run", "topics") | {"report": (straight.place / "report.html").read_bytes()}
    assert straight.run() == []
    write_day(straight.place, WEDNESDAY)
    assert outputs(straight.run()) == [
        "ingest corpus",
        f"ingest new/{WEDNESDAY} corpus",
        f"infer run new/{WEDNESDAY} topics/{WEDNESDAY}.csv",
    ]
    assert straight.run() == []
    later = straight.files("run", "topics") | {"report": (straight.place / "report.html").read_bytes()}
    assert later.keys() - first.keys() == {f"topics/{WEDNESDAY}.csv"}
    assert {name: later[name] for name in first} == first

    killed = pipeline("killed")
    for step, missing in (("ingest", "corpus"), ("train", "run/model"), ("ingest", "done/model"), ("infer", "topics")):
        assert outputs(killed.run(step, middle[step]))[-1].startswith(step)
        assert not list(killed.place.glob(f"{missing}/[!.]*" if missing == "topics" else missing))
        if step == "train":
            assert (killed.place / "run" / "config.json").exists()
            write_day(killed.place, WEDNESDAY)
    assert f"infer run new/{TUESDAY} topics/{TUESDAY}.csv" in outputs(killed.run())
    assert killed.files(*results) == straight.files(*results)
    assert killed.run() == []


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(PIPELINES / name)
    return parser


def test_the_units_of_systemd_call_what_is_there() -> None:
    """A directory that the service owns and can write to, a limit of memory, and no option that ooc cannot bear."""
    service, timer = unit("ooc-daily.service")["Service"], unit("ooc-daily.timer")
    (command,) = service["ExecStart"].split()
    assert command.endswith("/make")
    assert service["Type"] == "oneshot"
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    assert f"OOC_CACHE_DIR=/var/cache/{service['CacheDirectory']}" in service["Environment"].split()
    assert service["MemoryMax"]
    assert not {"MemoryDenyWriteExecute", "ProcSubset"} & set(service)
    assert timer["Install"]["WantedBy"] == "timers.target"
    if shutil.which("systemd-analyze") is None or not Path(command).exists():
        pytest.skip(f"there is no systemd-analyze, or no {command}, to verify the units with")
    done = subprocess.run(
        ["systemd-analyze", "verify", PIPELINES / "ooc-daily.service", PIPELINES / "ooc-daily.timer"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.long
def test_a_task_of_slurm_is_queued_again_until_its_model_is_done(tmp_path: Path, ooc: Ooc) -> None:
    (tmp_path / "days").mkdir()
    write_day(tmp_path, MONDAY)
    assert ooc("ingest", "jsonl", f"days/{MONDAY}.jsonl", "corpus").returncode == 0
    options = ["--topics", 3, "--iterations", 1500, "--workers", 1]
    assert ooc("train", "lda", "corpus", "straight", *options).returncode == 0
    add_program(tmp_path / "bin", "scontrol", '#!/bin/sh\necho "$*" >> scontrol.txt\n')
    add_program(tmp_path / "bin", "date", "#!/bin/sh\necho 1700000000\n")
    asked = {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "3", "SLURM_CPUS_PER_TASK": "1"}
    job = {**asked, "SLURM_MEM_PER_NODE": "1000", "OOC_ITERATIONS": "1500", "PATH": path_of(tmp_path / "bin")}

    def run(seconds: int) -> None:
        environment = {**os.environ, **job, "SLURM_JOB_END_TIME": str(1_700_000_000 + seconds)}
        subprocess.run(["bash", PIPELINES / "slurm-array.sh", "corpus"], cwd=tmp_path, env=environment, check=True)

    run(seconds=301)
    assert not (tmp_path / "topics-3" / "model").exists()
    run(seconds=4000)
    assert (tmp_path / "scontrol.txt").read_text() == "requeue 77_3\n"
    assert 'memory = "800MiB"' in (tmp_path / "topics-3" / "options.toml").read_text()
    assert tree(tmp_path / "topics-3" / "model") == tree(tmp_path / "straight" / "model")


SRUN = """#!/bin/sh
# Start two tasks, and exit with the largest of their codes.
case " $* " in *" --cpus-per-task=$SLURM_CPUS_PER_TASK "*) ;; *) exit 99 ;; esac
while [ "${1#-}" != "$1" ]; do shift; done
for rank in 0 1; do
    SLURM_PROCID=$rank SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 "$@" & tasks="$tasks $!"
done
worst=0
for task in $tasks; do wait "$task"; code=$?; [ $code -gt $worst ] && worst=$code; done
exit $worst
"""


def trained_by_threads(tmp_path: Path, ranks: int) -> dict[str, bytes]:
    """The model of a ring in one process, by the options of the examples."""
    runs = [tmp_path / f"expected-{rank}" for rank in range(ranks)]
    options = {"topics": 1000, "iterations": 40, "workers": 1, "quiet": True}
    on_ring(ranks, lambda ring: train_lda(tmp_path / f"shard-{ring.rank}", runs[ring.rank], ring=ring, **options))
    return model_bytes(runs[0])


@pytest.mark.long
def test_a_ring_of_slurm_is_queued_again_until_its_model_is_done(tmp_path: Path) -> None:
    shards_of(tmp_path, 2)
    add_program(tmp_path / "bin", "srun", SRUN)
    scontrol = '#!/bin/sh\nif [ "$1" = show ]; then echo localhost; else echo "$*" >> scontrol.txt; fi\n'
    add_program(tmp_path / "bin", "scontrol", scontrol)
    job = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "localhost", "SLURM_CPUS_PER_TASK": "1"}
    job |= {"OOC_ITERATIONS": "40", "PATH": path_of(tmp_path / "bin")}

    def run(**more: str) -> None:
        environment = {**os.environ, **job, **more}
        command = ["bash", PIPELINES / "slurm-ring.sh", "shard-{rank}", "run-{rank}"]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)

    run(OOC_MAX_TIME="0.5")
    assert (tmp_path / "scontrol.txt").read_text() == "requeue 4711\n"
    assert not (tmp_path / "run-0/model").exists()
    run()
    assert model_bytes(tmp_path / "run-0") == trained_by_threads(tmp_path, 2)
    assert not list(tmp_path.glob("*.key"))
    assert (tmp_path / "scontrol.txt").read_text().count("\n") == 1


@pytest.mark.long
def test_pods_of_the_manifest_of_kubernetes_train_one_model(tmp_path: Path) -> None:
    """Each is a process with the arguments and the environment that Kubernetes would give its container."""
    yaml = pytest.importorskip("yaml")
    service, job = yaml.safe_load_all((PIPELINES / "kubernetes.yaml").read_text())
    ranks, pod = job["spec"]["completions"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given = {each["name"]: each["value"] for each in container["env"]}
    assert (job["spec"]["completionMode"], job["spec"]["parallelism"]) == ("Indexed", ranks)
    assert given["OOC_RENDEZVOUS"].split(":")[0] == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert pod["subdomain"] == service["metadata"]["name"]
    shards_of(tmp_path, ranks)
    (tmp_path / "key").write_text(secrets.token_hex(32))
    (tmp_path / "key").chmod(0o400)
    given |= {"OOC_RENDEZVOUS": f"localhost:{free_port()}", "OOC_KEY_FILE": "key", "OOC_ITERATIONS": "40"}
    arguments = [word.replace("/data/shards/", "").replace("/data/", "") for word in container["args"]]
    pods = [
        subprocess.Popen(
            [sys.executable, "-m", "ooc", *arguments, "--workers=1"],
            cwd=tmp_path,
            env={**os.environ, **given, "JOB_COMPLETION_INDEX": str(rank)},
        )
        for rank in range(ranks)
    ]
    assert [each.wait(240) for each in pods] == [0] * ranks
    assert model_bytes(tmp_path / "topics-0") == trained_by_threads(tmp_path, ranks)
