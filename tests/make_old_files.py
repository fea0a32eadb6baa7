"""Create the files that `test_old_files.py` opens: python tests/make_old_files.py ARCHIVE

One tiny dataset of each kind and one run of each kind of model, by the command line, and what was told of them; packed
as .tar.xz. Run it for a release whose files differ from those of the release before, and keep the older archives.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

THEMES = ["apple pear plum fruit cherry tree", "goal team ball match player score", "star planet orbit moon sun comet"]
PLACE = "@PLACE@"  # in configurations, for the directory that they were made in
ONE = "--workers 1"
TOPICS = f"--topics 3 --evaluate-every 2 {ONE}"
SHORT = f"--rank 2 --iterations 2 {ONE}"
COMMANDS = [
    f"ingest jsonl texts.jsonl corpus {ONE}",
    f"ingest ratings ratings.tsv ratings {ONE}",
    "ingest svmlight numbers.svm design",
    "shard corpus shards --shards 2",
    f"train lda corpus lda --iterations 20 {TOPICS}",
    f"train lda corpus two-phase --sampler two-phase --average 2 --iterations 4 {TOPICS}",
    f"train lda corpus lightlda --sampler lightlda --optimize-every 1 --burn-in 1 --iterations 4 {TOPICS}",
    f"train lda corpus stopped --sampler two-phase --iterations 1000000 --max-time 0.2 {TOPICS}",
    *(f"train mf ratings {method} --method {method} {SHORT}" for method in ("sgd", "ccd", "als")),
    f"train mf ratings implicit --implicit --method als {SHORT}",
    f"train lasso design lasso --path 4 {ONE}",
    f"train logistic design logistic --path 4 {ONE}",
    f"train logistic design stopped-path --path 50 --max-time 0.001 {ONE}",
    "predict lasso design predicted.csv",
]
TOLD = {
    "topics.json": "topics lda --top 6 --documents 2 --json",
    "recommended.json": "recommend ccd --user u3 --top 3 --json",
    "corpus.json": "info corpus --json",
    "ratings.json": "info ratings --json",
    "design.json": "info design --json",
}


def write_inputs(directory: Path) -> None:
    """Write texts of three themes, ratings of users who like either even or odd items, and labelled samples."""
    draw = random.Random(5)
    texts = [" ".join(draw.choices(THEMES[number % 3].split(), k=12)) for number in range(24)]
    lines = [json.dumps({"id": f"doc{number}", "text": text}) for number, text in enumerate(texts)]
    (directory / "texts.jsonl").write_text("\n".join(lines) + "\n")
    pairs = [(user, item) for user in range(12) for item in range(8) if draw.random() < 0.7]
    rated = [f"u{user}\tfilm {item}\t{5 if (user + item) % 2 == 0 else 1}\n" for user, item in pairs]
    (directory / "ratings.tsv").write_text("".join(rated))
    samples = [f"{draw.choice((-1, 1))} 1:{draw.randrange(9)} 3:{draw.random():.3f}\n" for _ in range(10)]
    (directory / "numbers.svm").write_text("".join(samples))


def make(directory: Path) -> None:
    """Run all commands, and write their outputs to files."""
    write_inputs(directory)
    for command in COMMANDS:
        done = ooc(directory, command)
        assert done.returncode == (75 if "--max-time" in command else 0), done.stderr
    for name, command in TOLD.items():
        done = ooc(directory, command)
        assert done.returncode == 0, done.stderr
        (directory / name).write_text(done.stdout)
    for config in directory.glob("*/config.json"):
        content = json.loads(config.read_text().replace(str(directory), PLACE))
        content.pop("checksum", None)  # of the path that was there
        config.write_text(json.dumps(content))


def ooc(directory: Path, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ooc", *command.split()], cwd=directory, capture_output=True, text=True, check=False
    )


def nameless(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a text without its author and date."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch).resolve()
        make(place)
        with tarfile.open(sys.argv[1], "w:xz") as archive:
            for path in sorted(place.iterdir()):
                archive.add(path, path.name, filter=nameless)
