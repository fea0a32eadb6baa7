"""How much memory there is."""

from __future__ import annotations

import pytest

from blocks import memory


@pytest.mark.parametrize(("told", "limits", "expected"), [
    ("0::/user/job\n", {"user/job/memory.max": "500\n", "user/memory.max": "max\n", "memory.max": "900\n"}, [500, 900]),
    ("0::/user/job\n", {"memory.max": "900\n"}, [900]),  # a container, in which its own group is the root
    ("3:cpu:/a\n2:memory:/slurm/job\n0::/\n",
     {"memory/slurm/job/memory.limit_in_bytes": "300\n", "memory/memory.limit_in_bytes": "9000\n"}, [300, 9000]),
    ("0::/\n", {}, []),
])  # fmt: skip
def test_limits_of_all_control_groups_around_count(told, limits, expected, tmp_path):
    (tmp_path / "cgroup").write_text(told)
    for file, text in limits.items():
        path = tmp_path / "mounted" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert list(memory._limits(tmp_path / "cgroup", tmp_path / "mounted")) == expected


def test_a_system_without_control_groups_has_no_limits(tmp_path):
    assert list(memory._limits(tmp_path / "none", tmp_path)) == []
    assert memory.available() > 0
