"""What /proc says: who there is, told by number and time of start."""
import os
import resource
import select
import signal


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def start_of(pid):
    """Ticks since boot; "" when there is no such process, or only what is left to be reaped."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return fields[19].decode() if fields and fields[0] not in (b"Z", b"X") else ""


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def command_line(pid):
    return [word.decode(errors="replace") for word in _read(f"/proc/{pid}/cmdline").split(b"\0")]


def environment(pid):
    return _read(f"/proc/{pid}/environ")


def parent_of(pid):
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def descriptors(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


COMMON_DESCRIPTORS = 1024


def come_with_few_descriptors():
    """What we start comes with the limit that most systems give, and can be seen to raise it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(COMMON_DESCRIPTORS, hard - 1), hard))


def limit_descriptors(pid, more):
    """Leaves it what it has and `more`; gives back the limits before, None when it is gone."""
    try:
        highest = max((int(name) for name in os.listdir(f"/proc/{pid}/fd")), default=-1)
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        if before[0] != before[1]:
            return None  # it has not raised it yet: its replicas would be given what it came with
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1 + more, before[1]))
        return before
    except (OSError, ValueError):
        return None


def restore_descriptors(pid, before):
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    except OSError:
        pass  # it is gone


def resident_kib(pid):
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"VmRSS:"):
            return int(line.split()[1])
    return 0


def send(pid, number, still):
    """Signals the process if still(pid) holds once it can't be mistaken for another."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not still(pid):
            return False
        signal.pidfd_send_signal(fd, number)
        if number == signal.SIGKILL:
            select.select([fd], [], [], 10)  # its end, so that "killed" is true from here on
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
