"""Isolation of a candidate process, as far as an unprivileged process can go. Linux, ctypes, no dependency.

It is meant for code written by a model that takes every shortcut, not for hostile code. Each measure reports "on" or
why it is off; nothing here is required for a verdict, and the report goes into every evidence card.
"""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_CAPSET = {"x86_64": 126, "aarch64": 91}

# rights over files, in the order the kernel gained them (linux/landlock.h)
_EXECUTE, _WRITE, _READ, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FIRST_RIGHTS = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL_DEV


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _failed() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def _prctl(option: int, value: int) -> None:
    if _libc().prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        raise _failed()


def attempt(measure: Callable[[], None]) -> str:
    """Take a measure: "on", or the reason why the measure is off."""
    try:
        measure()
    except OSError as error:
        return f"off: {error.strerror or error}"
    return "on"


def become_subreaper() -> None:
    """Orphaned descendants become children of this process, so that it can end them."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Be killed when the parent dies. The parent must have one thread: the kernel watches the thread that forked."""
    _prctl(PR_SET_PDEATHSIG, 9)


def not_dumpable() -> None:
    """Keep /proc/<pid>/environ and mem from processes of the same user: a key removed from os.environ stays readable there."""
    _prctl(PR_SET_DUMPABLE, 0)


def no_new_privileges() -> None:
    """No program that is started gains rights (setuid and the like). Landlock requires it."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def no_core_files() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def leave_network() -> None:
    """Enter a network namespace of our own, without even a loopback that is up. Needs one thread."""
    user, group = os.geteuid(), os.getegid()
    if _libc().unshare(CLONE_NEWUSER | CLONE_NEWNET):
        raise _failed()
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def drop_capabilities() -> None:
    """Give up every capability: root without them is an ordinary user, and a user namespace hands out a full set."""
    number = _CAPSET.get(os.uname().machine)
    if number is None:
        raise OSError(0, f"the number of capset is not known on {os.uname().machine}")
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
    if _libc().syscall(number, header, ctypes.create_string_buffer(24)):
        raise _failed()


def limit_address_space(extra: int) -> None:
    """At most `extra` bytes more of address space than now. Never on CUDA, which reserves hundreds of gigabytes."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + extra, now + extra))


class _RulesetAttr(ctypes.Structure):
    _fields_ = (("handled_fs", ctypes.c_uint64), ("handled_net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def landlock_version() -> int:
    """The kernel's Landlock ABI, 0 where there is none."""
    return max(0, int(_libc().syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))))


def restrict_files(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Landlock: read and execute below `readable`, everything below `writable`, nothing elsewhere; TCP refused and, where the
    kernel can, signals and abstract sockets to outside too. For good, and for all descendants.

    Paths that do not exist are passed over. Raises OSError where the kernel has no Landlock.
    """
    version = landlock_version()
    if version == 0:
        raise OSError(0, "this kernel has no Landlock")
    rights = _FIRST_RIGHTS
    rights |= _REFER if version >= 2 else 0
    rights |= _TRUNCATE if version >= 3 else 0
    rights |= _IOCTL_DEV if version >= 5 else 0
    attr = _RulesetAttr(rights, 0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = int(_libc().syscall(_LANDLOCK_CREATE, ctypes.byref(attr), ctypes.c_size_t(size), ctypes.c_uint32(0)))
    if ruleset < 0:
        raise _failed()
    try:
        for path in readable:
            _allow(ruleset, path, _EXECUTE | _READ | _READ_DIR)
        for path in writable:
            _allow(ruleset, path, rights)
        if _libc().syscall(_LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)):
            raise _failed()
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return
    try:
        allowed = rights if os.path.isdir(path) else rights & _FILE_RIGHTS
        rule = _PathBeneath(allowed, fd)
        if _libc().syscall(
            _LANDLOCK_ADD, ctypes.c_int(ruleset), ctypes.c_int(1), ctypes.byref(rule), ctypes.c_uint32(0)
        ):
            raise _failed()
    finally:
        os.close(fd)


def paths_without(path: Path, hidden: Path) -> Iterator[str]:
    """`path`, or, where `hidden` lies in it, what is beside the way down to it: together everything but `hidden`.

    A rule of Landlock holds for everything below a path and cannot be taken back further down. Both paths are resolved;
    folders that cannot be listed are left out.
    """
    if path == hidden:
        return
    if path not in hidden.parents:
        yield str(path)
        return
    try:
        entries = sorted(path.iterdir())
    except OSError:
        return
    for entry in entries:
        yield from paths_without(entry, hidden)


def network_state() -> str:
    """Whether anything outside can be reached from here, found by looking: "on" when there is no interface that is up."""
    for _, name in socket.if_nameindex():
        if _interface_up(name):
            return f"off: interface {name} is up"
    return "on"


def _interface_up(name: str) -> bool:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sH14s", name.encode()[:15], 0, b"")
        try:
            answer = fcntl.ioctl(probe, 0x8913, request)  # SIOCGIFFLAGS
        except OSError:
            return False
    return bool(struct.unpack("16sH14s", answer)[1] & 1)


def no_new_privileges_state() -> str:
    """What /proc says of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("NoNewPrivs:"):
            return "on" if line.split()[1] == "1" else "off: the kernel does not report it"
    return "off: the kernel does not report it"


def file_state(outside: Path) -> str:
    """Say "on" when a folder outside the job's own cannot be written, found by trying."""
    probe = outside / f".probe-{os.getpid()}"
    try:
        probe.touch()
    except OSError:
        return "on"
    probe.unlink()
    return "off: files outside the job's folder can be written"


def hidden_state(pid: int) -> str:
    """Say "on" when the environment of that process cannot be read from here, found by trying."""
    try:
        Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return "on"
    return "off: the environment of the run process can be read"
