"""The file system of a path, from made-up tables of mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.host.filesystems import is_remote, kind

MOUNTS = """\
22 1 0:20 / / rw,relatime - overlay overlay rw
23 22 0:21 / /proc rw - proc proc rw
30 22 0:30 / /scratch rw - lustre 10.0.0.1@o2ib:/scratch rw
31 30 8:1 / /scratch/local rw,noatime shared:1 - ext4 /dev/nvme0n1 rw
32 22 0:31 / /media/my\\040disk rw - fuse.sshfs me@there:/ rw
33 22 0:32 / /data rw - ext4 /dev/sdb rw
34 22 0:33 / /data rw - nfs4 server:/data rw
35 22 0:34 / /block rw - fuseblk /dev/sdc rw
torn line
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(MOUNTS)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "overlay"), ("/anywhere/else", "overlay"), ("/scratch", "lustre"), ("/scratch/a/b", "lustre"),
        ("/scratchy", "overlay"), ("/scratch/local/x", "ext4"), ("/media/my disk/x", "fuse.sshfs"), ("/data/x", "nfs4"),
    ],
)  # fmt: skip
def test_the_innermost_and_last_mount_counts(path: str, expected: str, root: Path) -> None:
    assert kind(Path(path), root) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/x", False), ("/scratch/x", True), ("/scratch/local", False), ("/media/my disk", True), ("/data", True),
     ("/block", False)],
)  # fmt: skip
def test_what_another_machine_or_a_process_serves_is_remote(
    path: str, expected: bool, root: Path
) -> None:
    assert is_remote(Path(path), root) is expected


def test_without_the_kernels_table_nothing_is_remote(tmp_path: Path) -> None:
    assert kind(Path("/"), tmp_path) == ""
    assert not is_remote(Path("/"), tmp_path)


def test_this_machine_has_an_answer() -> None:
    assert kind(Path("/proc")) == "proc"
