"""A control group around everything that is tried: nothing started in it gets out of sight."""
import os


class Group:
    """Made in the v2 hierarchy below this process's own group. `path` is "" where that can't be."""

    def __init__(self):
        self.path = ""
        self.unavailable = "no writable cgroup v2 hierarchy"
        try:
            with open("/proc/self/cgroup") as file:
                own = [line.strip()[3:] for line in file if line.startswith("0::")]
            with open("/proc/self/mountinfo") as file:
                roots = [line.split()[4] for line in file if " - cgroup2 " in line]
            if own and roots:
                path = f"{roots[0]}{own[0].rstrip('/')}/chaos.{os.getpid()}"
                os.mkdir(path)
                self.path = path
        except OSError as error:
            self.unavailable = f"no writable cgroup v2 hierarchy: {error.strerror}"

    def enter(self):
        """For a child that is about to be executed."""
        if self.path:
            with open(self.path + "/cgroup.procs", "w") as file:
                file.write("0")

    def members(self):
        found = []
        for folder, _, _ in os.walk(self.path):
            try:
                with open(folder + "/cgroup.procs") as file:
                    found += [int(line) for line in file]
            except OSError:
                pass  # it went meanwhile
        return found

    def launches(self):
        """Groups of launches, of any runner."""
        if not self.path:
            return []
        return [folder for folder, _, _ in os.walk(self.path)
                if os.path.basename(folder).startswith("dtrain.")]

    def close(self):
        for folder, _, _ in os.walk(self.path, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass  # its members were reported
