from __future__ import annotations

import contextlib
import errno
import hashlib
import multiprocessing
import os
import stat
import subprocess
import sys
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from kernelmate.errors import SourceError
from kernelmate.records import Kernel
from kernelmate.source import apply_edits, file_text, load_kernel, load_kernels, read_units, text_unit, write_back
from kernelmate.source import find_kernels as find
from kernelmate.source import overwrite as overwrite_module
from kernelmate.source import write as write_module
from kernelmate.source.files import unread_kernels

K = "__global__ void k(int n) {}\n"
J = "__global__ void j(int n) {}\n"
BLOCK = '// /// kernelmate\n// sizes = [{ n = 1 }]\n// grid = 1\n// block = 1\n// [args]\n// n = "int32"\n// ///\n'


# ----------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("data", "says", "place"),
    [
        (b"", "file is empty", (None, None)),
        (b" \n\r\n\t", "file is empty", (None, None)),
        (b"\xef\xbb\xbf\n", "file is empty", (None, None)),
        (b"int x;\n", "no kernel in this file", (None, None)),
        (
            b"int x;\n__global__ void k(float* x { }\n",
            "parameter list of this __global__ function is not closed",
            (2, 1),
        ),
        (b"__global__ void k() {\0}", "binary: byte 21 is zero", (None, None)),
        (b"\xff\xfe_\0_\0", "UTF-16", (None, None)),
        (b"// ok\n// gr\xf6sse\n", "not UTF-8: byte 11 is 0xf6", (2, 6)),
        ("// é\n// é".encode() + b"\xe9", "not UTF-8: byte 11 is 0xe9", (2, 5)),
        (b"//" + b"x" * 5_000_001, "over the limit of 5 MB", (None, None)),
    ],
)
def test_a_file_that_cannot_be_used_says_why(
    tmp_path: Path, data: bytes, says: str, place: tuple[int | None, int | None]
) -> None:
    path = tmp_path / "k.cu"
    path.write_bytes(data)
    with pytest.raises(SourceError) as caught:
        load_kernels(path)
    assert says in caught.value.message
    assert caught.value.hint
    assert caught.value.file == str(path)
    assert (caught.value.line, caught.value.column) == place


DEFINING = """\
#define SCALE(factor)                                  \\
    __global__ void scale_by_##factor(float *x) {      \\
        x[threadIdx.x] *= factor;                      \\
    }
#define KERNEL __global__ void
SCALE(2)
"""


def test_kernels_that_macros_define_are_named_as_unread(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(DEFINING)
    with pytest.raises(SourceError, match=r"defined by macros, which are not read: SCALE\.") as caught:
        load_kernels(path)
    assert caught.value.line == 1
    path.write_text(DEFINING + K)
    assert [kernel.name for kernel in load_kernels(path)] == ["k"]
    assert unread_kernels(path) == (f"{path}:1:1: the kernels that the macro SCALE defines are not read",)


def test_a_file_without_kernels_says_where_those_are_that_it_launches(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "kernels.cuh").write_text("namespace ours { " + K.strip() + " }\n")
    main = tmp_path / "main.cu"
    main.write_text("int main() { ours::k<<<1, 32>>>(0); }\n")
    with pytest.raises(SourceError) as caught:
        load_kernels(main)
    assert (caught.value.hint or "").endswith(
        f"This file launches ours::k: kernelmate check {tmp_path / 'kernels.cuh'}"
    )


def test_kernels_of_one_name_are_told_apart_by_their_types(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(K + "__global__ void k(float *x) {}\n" + K.replace("k(", "m("))
    assert [kernel.label for kernel in load_kernels(path)] == ["k(int)", "k(float *)", "m"]
    assert load_kernel(f"{path}::k(float*)").line == 2
    with pytest.raises(SourceError, match=r"Several kernels are called k\. Write one of k\(int\), k\(float \*\)"):
        load_kernel(f"{path}::k")


def test_kernels_of_one_name_and_signature_are_told_apart_by_their_line(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text("#ifdef A\n" + K + "\n#else\n" + K + "\n#endif\n")
    first, second = load_kernels(path)
    assert (first.name, second.name) == ("k", "k")
    assert load_kernel(f"{path}::{second.label}").start == second.start


def test_paths_that_are_no_files_say_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "softmax.cu").write_text(K)
    for path, says in (
        (tmp_path / "softmx.cu", r"no such file.*Did you mean .*softmax\.cu"),
        (tmp_path / "nowhere" / "k.cu", "no such file"),
        (tmp_path, "is a directory"),
        (tmp_path / "a.ipynb", "is a notebook"),
        (Path("a\0b"), "not a path"),
        (tmp_path / "softmax.cu" / "k.cu", "cannot be read"),
    ):
        with pytest.raises(SourceError, match=says):
            load_kernel(str(path))


def test_a_kernel_is_named_by_file_alone_by_name_or_by_the_end_of_its_name(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(K + "namespace a::b { " + J + "}")
    assert load_kernel(f"{path}::k").name == "k"
    assert load_kernel(f"{path}::j").name == "a::b::j"
    assert load_kernel(f"{path}::b::j").name == "a::b::j"
    assert load_kernel(f"{path}::a::b::j").name == "a::b::j"
    with pytest.raises(SourceError, match=r"2 kernels: k, a::b::j\. Name one: .*::k"):
        load_kernel(str(path))
    with pytest.raises(SourceError, match=r"no kernel kk here.*Did you mean k\? There is k, a::b::j"):
        load_kernel(f"{path}::kk")
    path.write_text(K)
    assert load_kernel(str(path)).name == "k"


def test_of_several_kernels_the_only_one_with_a_contract_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(K + BLOCK + J)
    assert load_kernel(str(path)).name == "j"
    path.write_text(BLOCK + K + BLOCK + J)
    with pytest.raises(SourceError, match="2 kernels"):
        load_kernel(str(path))


def test_an_ambiguous_short_name_lists_what_fits(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text("namespace a { " + K + "}\nnamespace b { " + K + "}\n")
    with pytest.raises(SourceError, match=r"Several kernels are called k\. Write one of a::k, b::k"):
        load_kernel(f"{path}::k")


def test_a_name_with_colons_in_the_path_itself_is_the_path(tmp_path: Path) -> None:
    path = tmp_path / "odd::name.cu"
    path.write_text(K)
    assert load_kernel(str(path)).name == "k"


# --------------------------------------------------------------------------------------------------- write-back


def changed(kernel: Kernel, text: str) -> Kernel:
    return apply_edits(kernel, [(kernel.end - 1, kernel.end - 1, text)])


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    path = tmp_path / "k.cu"
    path.write_bytes(K.encode())
    path.chmod(0o640)
    return load_kernel(str(path))


def test_the_change_is_written_and_the_old_file_kept(kernel: Kernel) -> None:
    path = Path(kernel.unit.path)
    backup = write_back(kernel, changed(kernel, " n; "))
    assert path.read_text() == K.replace("{}", "{ n; }")
    assert backup == path.with_name("k.cu.kernelmate-backup")
    assert backup.read_text() == K
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(other.name for other in path.parent.iterdir()) == ["k.cu", "k.cu.kernelmate-backup"]


def test_backups_are_numbered_and_never_overwritten(kernel: Kernel) -> None:
    path = Path(kernel.unit.path)
    write_back(kernel, changed(kernel, " n; "))
    second = load_kernel(str(path))
    backup = write_back(second, changed(second, " n; "))
    assert backup.name == "k.cu.kernelmate-backup-1"
    assert backup.read_text() == K.replace("{}", "{ n; }")
    assert path.with_name("k.cu.kernelmate-backup").read_text() == K


def test_a_file_that_changed_meanwhile_is_left_alone(kernel: Kernel) -> None:
    path = Path(kernel.unit.path)
    path.write_text(K + "// mine\n")
    with pytest.raises(SourceError, match="changed after it was read; nothing was written"):
        write_back(kernel, changed(kernel, " n; "))
    assert path.read_text() == K + "// mine\n"
    assert [other.name for other in path.parent.iterdir()] == ["k.cu"]


def test_a_file_that_is_gone_is_not_made_again(kernel: Kernel) -> None:
    path = Path(kernel.unit.path)
    path.unlink()
    with pytest.raises(SourceError, match="cannot be written"):
        write_back(kernel, changed(kernel, " n; "))
    assert list(path.parent.iterdir()) == []


def test_a_failing_replace_leaves_the_file_as_it_was(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(kernel.unit.path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write_module.os, "fsync", full)
    with pytest.raises(SourceError, match="No space left on device; it is as it was") as caught:
        write_back(kernel, changed(kernel, " n; "))
    assert caught.value.hint
    assert path.read_text() == K
    assert [other.name for other in path.parent.iterdir()] == ["k.cu"]


@pytest.mark.skipif(os.name == "nt", reason="modes do not bind on Windows")
@pytest.mark.parametrize("folder", [False, True])
def test_a_read_only_file_or_directory_is_refused_and_named(kernel: Kernel, *, folder: bool) -> None:
    path = Path(kernel.unit.path)
    locked, mode, said = (path.parent, 0o500, "its folder is read-only") if folder else (path, 0o440, "it is read-only")
    locked.chmod(mode)
    try:
        with pytest.raises(SourceError, match=f"cannot be written: {said}.*Make .* writable") as refused:
            write_back(kernel, changed(kernel, " n; "))
    finally:
        locked.chmod(0o700)
    assert refused.value.file == str(path)
    assert path.read_text() == K
    assert [other.name for other in path.parent.iterdir()] == ["k.cu"]


def test_a_directory_that_takes_no_new_file_is_said(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **words: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(write_module.os, "open", refuse)
    with pytest.raises(SourceError, match=r"cannot be written: Permission denied.* make it writable"):
        write_back(kernel, changed(kernel, " n; "))
    assert Path(kernel.unit.path).read_text() == K


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real.cu"
    real.write_text(K)
    link = tmp_path / "link.cu"
    link.symlink_to(real)
    kernel = load_kernel(str(link))
    backup = write_back(kernel, changed(kernel, " n; "))
    assert link.is_symlink()
    assert real.read_text() == K.replace("{}", "{ n; }")
    assert backup.name == "real.cu.kernelmate-backup"


@pytest.mark.parametrize("body", [" n; ", " /* longer */ " * 2000])
def test_hard_links_share_the_new_text(kernel: Kernel, body: str) -> None:
    path = Path(kernel.unit.path)
    other = path.with_name("other.cu")
    other.hardlink_to(path)
    inode = path.stat().st_ino
    backup = write_back(kernel, changed(kernel, body))
    assert path.read_text() == other.read_text() == K.replace("{}", "{" + body + "}")
    assert backup.read_text() == K
    assert (path.stat().st_nlink, path.stat().st_ino, other.stat().st_ino) == (2, inode, inode)
    assert sorted(one.name for one in path.parent.iterdir()) == ["k.cu", "k.cu.kernelmate-backup", "other.cu"]


def test_a_shorter_text_leaves_nothing_of_a_longer_one_in_a_hard_link(kernel: Kernel) -> None:
    path = Path(kernel.unit.path)
    path.with_name("other.cu").hardlink_to(path)
    write_back(kernel, changed(kernel, " /* longer */ " * 2000))
    longer = load_kernel(str(path))
    write_back(longer, kernel)
    assert path.read_text() == K


def test_text_that_does_not_fit_leaves_a_hard_link_as_it_was(kernel: Kernel) -> None:
    resource = pytest.importorskip("resource")
    path = Path(kernel.unit.path)
    path.with_name("other.cu").hardlink_to(path)
    new = path.with_name("new")
    new.write_bytes(b"x" * 100_000)
    digest = hashlib.sha256(K.encode()).hexdigest()
    done = subprocess.run(
        [sys.executable, "-I", overwrite_module.__file__, str(path), str(new), digest],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )
    assert done.stdout.strip() == str(errno.EFBIG)
    assert path.read_text() == K


def test_what_changed_between_reading_and_overwriting_is_kept(kernel: Kernel) -> None:
    path = Path(kernel.unit.path)
    new = path.with_name("new")
    new.write_text("new")
    assert not overwrite_module.overwrite(str(path), str(new), hashlib.sha256(b"read before").hexdigest())
    assert path.read_text() == K


@pytest.mark.skipif(sys.platform != "linux", reason="owners and extended attributes as on Linux")
def test_owner_mode_and_attributes_stay(kernel: Kernel) -> None:
    path = Path(kernel.unit.path)
    if os.geteuid() == 0:
        os.chown(path, 12345, 23456)
    path.chmod(0o4751)
    with contextlib.suppress(OSError):  # not every file system has them
        os.setxattr(path, "user.kernelmate", b"kept")
    before, attributes = path.stat(), os.listxattr(path)
    backup = write_back(kernel, changed(kernel, " n; "))
    after = path.stat()
    assert path.read_text() == K.replace("{}", "{ n; }")
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert os.listxattr(path) == attributes
    assert (backup.stat().st_uid, backup.stat().st_gid) == (before.st_uid, before.st_gid)


@pytest.mark.skipif(os.name == "nt", reason="owners as on POSIX")
def test_a_file_whose_owner_cannot_be_given_to_a_new_one_is_overwritten_in_place(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(kernel.unit.path)
    monkeypatch.setattr(write_module, "_made_alike", lambda *_: False)
    inode = path.stat().st_ino
    write_back(kernel, changed(kernel, " n; "))
    assert path.read_text() == K.replace("{}", "{ n; }")
    assert path.stat().st_ino == inode


def test_a_backup_that_holds_the_text_already_is_not_made_again(kernel: Kernel) -> None:
    path = Path(kernel.unit.path)
    path.with_name("k.cu.kernelmate-backup").write_text(K)
    backup = write_back(kernel, changed(kernel, " n; "))
    assert backup.name == "k.cu.kernelmate-backup"
    assert sorted(other.name for other in path.parent.iterdir()) == ["k.cu", "k.cu.kernelmate-backup"]


def test_what_a_killed_write_left_is_removed_at_the_next_start(kernel: Kernel) -> None:
    path = Path(kernel.unit.path)
    new, lock = path.with_name(".k.cu.kernelmate-new"), path.with_name(".k.cu.kernelmate-lock")
    new.write_text("half of it")
    lock.touch()
    load_kernel(str(path))
    assert [other.name for other in path.parent.iterdir()] == ["k.cu"]


@pytest.mark.skipif(os.name == "nt", reason="flock")
def test_what_another_process_is_writing_is_no_leftover(kernel: Kernel) -> None:
    path = Path(kernel.unit.path)
    new = path.with_name(".k.cu.kernelmate-new")
    new.write_text("half of it")
    with write_module._locked(path):
        load_kernel(str(path))
        assert new.exists()
    load_kernel(str(path))
    assert not new.exists()


@pytest.mark.skipif(os.name == "nt", reason="symbolic links as on POSIX")
def test_a_link_in_place_of_a_leftover_is_not_followed(kernel: Kernel, tmp_path: Path) -> None:
    path = Path(kernel.unit.path)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path.with_name(".k.cu.kernelmate-new").symlink_to(victim)
    write_back(load_kernel(str(path)), changed(kernel, " n; "))
    assert victim.read_text() == "mine"
    assert path.read_text() == K.replace("{}", "{ n; }")


@pytest.mark.skipif(os.name == "nt", reason="symbolic links as on POSIX")
def test_a_link_in_place_of_the_lock_makes_no_file(kernel: Kernel, tmp_path: Path) -> None:
    """A project may bring one, and reading a file is enough to look for leftovers."""
    path = Path(kernel.unit.path)
    victim = tmp_path / "elsewhere"
    path.with_name(".k.cu.kernelmate-lock").symlink_to(victim)
    read = load_kernel(str(path))
    with pytest.raises(SourceError, match="cannot be written"):
        write_back(read, changed(kernel, " n; "))
    assert not victim.exists()
    assert path.read_text() == file_text(kernel)


@pytest.mark.skipif(os.name == "nt", reason="flock")
def test_a_file_that_another_process_locks_is_not_waited_for_without_end(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may read a file can lock it, a reference for one."""
    import fcntl

    path = Path(kernel.unit.path)
    new = path.with_name("new")
    new.write_text("other")
    old = path.read_bytes()
    monkeypatch.setattr(overwrite_module, "WAIT_S", 0.1)
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            overwrite_module.overwrite(str(path), str(new), hashlib.sha256(old).hexdigest())
    assert path.read_bytes() == old
    assert overwrite_module.overwrite(str(path), str(new), hashlib.sha256(old).hexdigest())
    assert path.read_text() == "other"


def test_a_cell_has_no_file_to_write() -> None:
    (kernel,) = find(text_unit(K))
    with pytest.raises(SourceError, match="without a file"):
        write_back(kernel, kernel)


def race(path: str, number: int, barrier: Barrier, results: multiprocessing.Queue[tuple[int, str]]) -> None:
    kernel = load_kernel(path)
    after = changed(kernel, f" /* {number} */ " * 2000)
    barrier.wait()
    try:
        results.put((number, str(write_back(kernel, after))))
    except SourceError as error:
        results.put((number, f"refused: {error.message}"))


def test_of_processes_that_write_at_once_exactly_one_wins(kernel: Kernel) -> None:
    path = Path(kernel.unit.path)
    context = multiprocessing.get_context("fork" if os.name != "nt" else "spawn")
    count = 6
    barrier = context.Barrier(count)
    results: multiprocessing.Queue[tuple[int, str]] = context.Queue()
    processes = [context.Process(target=race, args=(str(path), n, barrier, results)) for n in range(count)]
    for process in processes:
        process.start()
    outcomes = dict(results.get() for _ in processes)
    for process in processes:
        process.join()
    winners = [number for number, outcome in outcomes.items() if not outcome.startswith("refused")]
    assert len(winners) == 1
    assert path.read_text() == K.replace("{}", "{" + f" /* {winners[0]} */ " * 2000 + "}")
    assert sorted(other.name for other in path.parent.iterdir()) == ["k.cu", "k.cu.kernelmate-backup"]
    assert all("changed after it was read" in outcome for n, outcome in outcomes.items() if n != winners[0])


def test_line_ends_are_compared_as_they_are_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_bytes(K.replace("\n", "\r\n").encode())
    kernel = load_kernel(str(path))
    write_back(kernel, changed(kernel, "\n"))
    assert path.read_bytes() == b"__global__ void k(int n) {\r\n}\r\n"
    (unit,) = read_units(path)
    assert unit.text == "__global__ void k(int n) {\n}\n"
    assert file_text(load_kernel(str(path))).encode() == path.read_bytes()


def test_a_python_file_is_written_back_too(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text(f"import cupy as cp\n\nk = cp.RawKernel(r'''\n{K}''', 'k')\n")
    kernel = load_kernel(f"{path}::k")
    write_back(kernel, changed(kernel, " n; "))
    assert path.read_text() == f"import cupy as cp\n\nk = cp.RawKernel(r'''\n{K.replace('{}', '{ n; }')}''', 'k')\n"


def test_a_device_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.symlink_to("/dev/zero")
    with pytest.raises(SourceError, match="over the limit of 5 MB"):
        read_units(path)


def test_a_file_that_is_one_raw_string_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / "generated.cu"
    file.write_text('R"===(\n__global__ void k(float *x) { x[0] = 1; }\n)==="\n')
    with pytest.raises(SourceError) as caught:
        load_kernel(str(file))
    assert "one raw string literal" in (caught.value.hint or "")
