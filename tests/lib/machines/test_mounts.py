"""Ring 1: what a table of mounts says of a folder that several machines are to work in. The lines are as kernels print them."""

from __future__ import annotations

from pathlib import Path

import pytest
from lib.machines import mounts
from lib.machines.mounts import Mount

NFS = "rw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255{more},hard,proto=tcp,timeo=600,retrans=2,sec=sys,clientaddr=10.0.0.2"
TABLE = f"""\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
30 22 0:40 / /shared rw,relatime shared:7 - nfs4 files:/export {NFS.format(more="")},local_lock=none,addr=10.0.0.1
31 22 0:41 / /good rw,relatime shared:8 - nfs4 files:/good {
    NFS.format(more=",acregmin=0,acregmax=0,acdirmin=0,acdirmax=0")
},local_lock=none,addr=10.0.0.1
32 22 0:42 / /quiet rw,relatime shared:8 - nfs4 files:/quiet {NFS.format(more=",noac")},local_lock=none,addr=10.0.0.1
33 22 0:43 / /old rw,relatime - nfs files:/old rw,vers=3,nolock,noac,local_lock=all,addr=10.0.0.1
34 22 0:44 / /my\\040disk rw,relatime - fuse.sshfs me@there:/ rw,user_id=0,group_id=0
35 22 0:45 / /scratch rw,relatime - lustre 10.0.0.1@tcp:/scratch rw,flock,lazystatfs
36 22 0:46 / /burst rw,relatime - lustre 10.0.0.1@tcp:/burst rw,localflock,lazystatfs
37 30 0:47 / /shared/over rw,relatime - tmpfs tmpfs rw,size=1024k
38 37 0:48 / /shared/over rw,relatime - ceph 10.0.0.1:/ rw,name=strata,acl
"""


@pytest.mark.parametrize(
    ("folder", "kind", "says"),
    [
        ("/home/me", "ext4", ""),
        ("/shared", "nfs4", "actimeo=0"),
        ("/shared/strata/s", "nfs4", "actimeo=0"),
        ("/sharedness", "ext4", ""),
        ("/good/s", "nfs4", ""),
        ("/quiet", "nfs4", ""),
        ("/old", "nfs", "nolock"),
        ("/my disk/s", "fuse.sshfs", "sshfs"),
        ("/scratch/s", "lustre", ""),
        ("/burst/s", "lustre", "localflock"),
        ("/shared/over/s", "ceph", ""),
    ],
)
def test_what_its_options_say_of_a_folder(folder: str, kind: str, says: str) -> None:
    found = mounts.of(Path(folder), TABLE)
    assert found and found.kind == kind
    assert says in found.trouble and bool(says) == bool(found.trouble)


def test_the_table_of_this_machine_is_read(tmp_path: Path) -> None:
    assert mounts.of(tmp_path)
    assert mounts.of(Path("/proc")) == mounts.of(Path("/proc/self"))
    assert mounts.of(Path("/proc/self")).kind == "proc"  # type: ignore[union-attr]


def test_where_there_is_no_table_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "TABLE", tmp_path / "none")
    assert mounts.of(tmp_path) is None
    assert Mount("nfs4", ("noac",)).trouble == ""
