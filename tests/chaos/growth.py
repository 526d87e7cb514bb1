"""Memory and descriptors of the processes that stay, when nothing runs: flat, round after round."""
import processes

DESCRIPTORS_MORE = 12       # gRPC's own come and go
RESIDENT_MORE_KIB = 48 << 10


class Growth:
    def __init__(self, cluster):
        self.kinds = {"daemon": cluster.is_daemon, "runner": cluster.is_runner,
                      "nursery": cluster.is_nursery}
        self.cluster = cluster
        self.first = {}   # kind -> (descriptors, KiB), the least a process of it had at rest
        self.seen = {}    # (kind, pid) -> looks in a row

    def look(self, checks):
        for kind, which in self.kinds.items():
            for pid in self.cluster.find(which):
                now = (processes.descriptors(pid), processes.resident_kib(pid))
                if not all(now):
                    continue
                least = self.first.setdefault(kind, now)
                self.first[kind] = (min(least[0], now[0]), min(least[1], now[1]))
                checks.that(now[0] <= least[0] + DESCRIPTORS_MORE, "descriptors stay flat",
                            kind, pid, f"{least[0]}, now {now[0]}")
                checks.that(now[1] <= least[1] + RESIDENT_MORE_KIB, "memory stays flat", kind,
                            pid, f"{least[1]} KiB, now {now[1]}")
