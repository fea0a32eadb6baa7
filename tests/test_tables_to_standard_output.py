"""Tables written to - are all that is on standard output, as other programs read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Ooc


@pytest.mark.long
def test_only_the_table_is_on_standard_output(ooc: Ooc, tmp_path: Path) -> None:
    texts = ["court judge trial court", "nest wing song nest", "court song trial wing"] * 20
    rows = "".join(f"{'AB'[number % 2]},{text}\n" for number, text in enumerate(texts))
    (tmp_path / "texts.csv").write_text(f"journal,text\n{rows}")
    ingested = ooc("ingest", "csv", "texts.csv", "papers", "--keep", "journal", "--quiet")
    assert ingested.returncode == 0, ingested.stderr
    trained = ooc("train", "lda", "papers", "run", "--topics", 2, "--iterations", 2, "--workers", 1, "--quiet")
    assert trained.returncode == 0, trained.stderr
    for command, option in (
        (("topics", "run"), "--csv"),
        (("compare", "run", "--by", "journal"), "--csv"),
        (("compare", "run", "--regress", "journal"), "--csv"),
        (("infer", "run", "papers", "mixtures.csv", "--overwrite", "--workers", 1), "--assignments"),
        (("evaluate", "run", "papers", "--workers", 1), "--documents"),
    ):
        to_file = ooc(*command, option, f"{command[0]}.csv", "--overwrite")
        assert to_file.returncode == 0, to_file.stderr
        piped = ooc(*command, option, "-")
        assert piped.returncode == 0, piped.stderr
        assert piped.stdout == (tmp_path / f"{command[0]}.csv").read_text()
        told = to_file.stdout.replace(f"{command[0]}.csv:", "-:")
        assert told in piped.stderr
        both = ooc(*command, option, "-", "--json")
        assert both.returncode == 2
        assert f"--json and {option} - both write to standard output" in both.stderr
