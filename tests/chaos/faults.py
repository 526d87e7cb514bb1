"""What is done to dtrain, and what is remembered of it: whom it may have cost something."""
import dataclasses
import pathlib
import signal
import time

import processes
import witness


@dataclasses.dataclass
class Harm:
    """What happened to a submission that may change its outcome."""
    kill_tried: bool = False  # a dtrain kill was begun
    kill_taken: set = dataclasses.field(default_factory=set)  # ids that can but be KILLED
    keepers: set = dataclasses.field(default_factory=set)  # experiments whose keeper we killed
    struck: set = dataclasses.field(default_factory=set)  # experiments with a replica we killed
    filled: set = dataclasses.field(default_factory=set)  # hosts whose disk was full: output may be lost


class Faults:
    def __init__(self, cluster, say):
        self.cluster = cluster
        self.say = say
        self.undo = []          # (when, what to do then)
        self.killed_keepers = set()
        self.struck = set()
        self.filled = set()     # hosts whose disk was full for a while

    def pick(self, which, number):
        found = self.cluster.find(which)
        return found[number % len(found)] if found else None

    def kill(self, which, number):
        pid = self.pick(which, number)
        if pid is not None and processes.send(pid, signal.SIGKILL, which):
            self.say(f"killed {pid}")

    def kill_keeper(self, number):
        cluster = self.cluster
        pid = self.pick(cluster.is_keeper, number)
        words = processes.command_line(pid) if pid is not None else []
        if len(words) < 3:  # none, or it has ended since
            return
        launch = pathlib.Path(words[2]).name
        # Noted first: what follows from it may be seen before this returns.
        self.killed_keepers.add(launch.partition("@")[0].removesuffix(".build"))
        processes.send(pid, signal.SIGKILL, cluster.is_keeper)
        self.say(f"killed the keeper of {launch}, {pid}")

    def kill_replica(self, number):
        told = [each for each in witness.read_all(self.cluster.folder / "witness")
                if each.pids and each.pids[0][0] in witness.alive(each)]
        if not told:
            return
        one = told[number % len(told)]
        pid, start = one.pids[0]
        self.struck.add(one.experiment)
        processes.send(pid, signal.SIGKILL, lambda pid: processes.start_of(pid) == start)
        self.say(f"killed {one.name}, {pid}")

    def pause(self, which, number, for_ms):
        pid = self.pick(which, number)
        if pid is not None and processes.send(pid, signal.SIGSTOP, which):
            self.undo_in(for_ms, lambda: processes.send(pid, signal.SIGCONT, which))

    def starve(self, which, number, for_ms):
        """For a while it can open next to nothing."""
        pid = self.pick(which, number)
        before = processes.limit_descriptors(pid, number % 3) if pid is not None else None
        if before:
            self.say(f"starved {pid}")
            self.undo_in(for_ms, lambda: processes.restore_descriptors(pid, before))

    def fill(self, number, for_ms):
        host, disk = sorted(self.cluster.disks.items())[number % len(self.cluster.disks)]
        if not disk.unavailable and not disk.full and disk.fill(number // 8):
            self.filled.add(host)
            self.say(f"filled the disk of {host}")
            self.undo_in(for_ms, disk.empty)

    def set_clock(self, number):
        seconds = self.cluster.clock.set(number)
        if seconds is not None:
            self.say(f"the clock is wrong by {seconds} s")

    def undo_in(self, for_ms, what):
        self.undo.append((time.monotonic() + for_ms / 1000, what))

    def mend(self, all_of_it=False):
        """Undoes what has lasted long enough; says when the next one has."""
        now = time.monotonic()
        for entry in list(self.undo):
            if all_of_it or entry[0] <= now:
                entry[1]()
                self.undo.remove(entry)
        return min((entry[0] for entry in self.undo), default=None)

    def do(self, action):
        cluster = self.cluster
        if action.name in ("kill daemon", "kill daemon+runner", "kill everything"):
            self.kill(cluster.is_daemon, 0)
        if action.name in ("kill runner", "kill daemon+runner", "kill everything"):
            self.kill(cluster.is_runner, action.number)
        if action.name in ("kill keeper", "kill everything"):
            self.kill_keeper(action.number)
        if action.name == "kill nursery":
            self.kill(cluster.is_nursery, action.number)
        if action.name == "kill replica":
            self.kill_replica(action.number)
        if action.name == "pause daemon":
            self.pause(cluster.is_daemon, 0, action.for_ms)
        if action.name == "pause runner":
            self.pause(cluster.is_runner, action.number, action.for_ms)
        if action.name == "pause keeper":
            self.pause(cluster.is_keeper, action.number, action.for_ms)
        if action.name == "starve daemon":
            self.starve(cluster.is_daemon, 0, action.for_ms)
        if action.name == "fill disk":
            self.fill(action.number, action.for_ms)
        if action.name == "starve runner":
            self.starve(cluster.is_runner, action.number, action.for_ms)
        if action.name == "set clock":
            self.set_clock(action.number)
