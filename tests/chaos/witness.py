"""What the replicas told past dtrain: the files replica.py wrote."""
import dataclasses
import pathlib

import processes
from replica import COUNTS


@dataclasses.dataclass
class Told:
    """One attempt of one replica."""
    replica: str
    attempt: int
    starts: int = 0
    order: int = 0           # which start of this replica it was
    beside: int = 0          # it found another copy alive
    pids: list = dataclasses.field(default_factory=list)   # [(pid, start)], its children too
    key: str = ""
    code: int | None = None  # it ended by itself
    ends: int = 0
    begun: int = 0           # lines
    written: int = 0

    @property
    def experiment(self):
        return experiment_of(self.replica)

    @property
    def name(self):
        return f"{self.replica}@{self.attempt}"

    @property
    def seat(self):
        return self.replica[len(self.experiment) + 1:]


def experiment_of(replica):
    """4.2.worker.1 -> 4.2; a role never begins with a digit."""
    words = replica.split(".")
    return ".".join(words[:2] if words[1].isdigit() else words[:1])


def read(path):
    replica, _, attempt = path.name.rpartition("@")
    told = Told(replica, int(attempt))
    for line in path.read_text().splitlines():
        word, *rest = line.split()
        if word == "start":
            told.starts += 1
            told.order, told.key = int(rest[2]), rest[4]
        if word in ("start", "child"):
            told.pids.append((int(rest[0]), rest[1]))
        if word == "beside":
            told.beside += 1
        if word == "end":
            told.code = int(rest[0])
            told.ends += 1
    counts = path.with_name(path.name + ".counts")
    if counts.exists() and counts.stat().st_size == COUNTS.size:
        told.begun, told.written = COUNTS.unpack(counts.read_bytes())
    return told


def read_all(folder):
    return [read(path) for path in sorted(pathlib.Path(folder).iterdir())
            if "@" in path.name and not path.name.endswith(".counts")]


def alive(told):
    return [pid for pid, start in told.pids if processes.start_of(pid) == start]
