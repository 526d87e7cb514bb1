"""What must not be there when everything has ended: looked for until it is gone, or time is up."""
import os
import pathlib
import time

import processes

PATIENCE_S = 180
LOOK_AGAIN_S = 0.05  # directories of several runners and /proc have no event to wait for in common


def names_in(folder):
    try:
        return sorted(str(path) for path in pathlib.Path(folder).iterdir())
    except OSError:
        return []


def of_launches(cluster):
    """Processes, groups, mounts and directories of launches."""
    folder = str(cluster.folder)
    found = [f"keeper {pid}: {' '.join(processes.command_line(pid))}"
             for pid in cluster.find(cluster.is_keeper)]
    for pid in processes.all_pids():
        words = processes.environment(pid)
        if b"DTRAIN_KEY=" in words and folder.encode() in words and processes.start_of(pid):
            found.append(f"process {pid}: {' '.join(processes.command_line(pid))}")
    found += [f"control group {path}" for path in cluster.group.launches()]
    with open("/proc/self/mountinfo") as file:
        disks = {str(disk.path) for disk in cluster.disks.values()}
        places = [line.split()[4] for line in file]
    found += [f"mount {each}" for each in places if folder in each and each not in disks]
    for home in cluster.runner_homes():
        found += [f"launch {path}" for path in names_in(home / "launches")]
        found += [f"view {path}" for path in names_in(home / "work")]
    return found


def of_cluster(cluster):
    """Anything at all that still runs."""
    return [f"process {pid}: {' '.join(processes.command_line(pid))}"
            for pid in pids_of(cluster)] + of_launches(cluster)


def pids_of(cluster):
    needle = str(cluster.folder).encode()
    found = set(cluster.group.members())
    found.update(pid for pid in processes.all_pids() if needle in processes.environment(pid))
    found.update(cluster.find(cluster.is_keeper))
    found.discard(os.getpid())
    return [pid for pid in sorted(found) if processes.start_of(pid)]


def wait_for_none(look, cluster):
    """What is left at the end of patience; nothing is the answer hoped for."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = look(cluster)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(LOOK_AGAIN_S)
