"""A dtrain of one's own: its home, the commands given to it, its processes, its further hosts."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import processes
from clock import Clock
from disks import Disk

# Busy machines are slow; a wait ends with what it waits for, so this costs nothing.
PATIENCE_S = 180


class Broken(Exception):
    """A promise of dtrain's that did not hold."""


class Command:
    """A dtrain command that runs beside us; what it prints goes to files."""

    def __init__(self, cluster, words, inside=()):
        cluster.commands += 1
        self.words = words
        base = cluster.folder / "commands" / f"{cluster.commands}.{words[0]}"
        self.out_path, self.err_path = f"{base}.out", f"{base}.err"
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(
                [*inside, str(cluster.dtrain), *words], env=cluster.env, cwd=cluster.project,
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, preexec_fn=cluster.group.enter)
        self.killed = False

    def wait(self):
        """Its exit code."""
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise Broken(f"dtrain {' '.join(self.words)} did not end within {PATIENCE_S} s:"
                         f" {self.err()}") from None

    def kill(self):
        if self.process.poll() is None:
            self.killed = True
            self.process.kill()

    def out(self):
        return pathlib.Path(self.out_path).read_bytes()

    def err(self):
        return pathlib.Path(self.err_path).read_text(errors="replace").strip()

    def facts(self):
        try:
            return json.loads(self.out())
        except ValueError:
            return None

    def forget(self):
        for path in (self.out_path, self.err_path):
            os.unlink(path)


class Cluster:
    def __init__(self, dtrain, group, network, clock_library):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dtrain-chaos-"))
        self.home = self.folder / "home"
        self.project = self.folder / "project"
        for name in ("project", "commands", "witness"):
            (self.folder / name).mkdir()
        # By host; of what runs on this machine itself under "".
        self.disks = {"": Disk(self.home)}
        self.disks.update({f"host{host}": Disk(self.folder / f"host{host}")
                           for host in range(network.hosts)})
        shutil.copy(pathlib.Path(__file__).with_name("replica.py"), self.project)
        self.dtrain = self.folder / "dtrain"
        shutil.copy2(dtrain, self.dtrain)  # a build that goes on can't change it under us
        self.group, self.network = group, network
        self.env = {name: value for name, value in os.environ.items()
                    if not name.startswith("DTRAIN_")}
        self.env.update(DTRAIN_HOME=str(self.home), NO_COLOR="", LC_ALL="C.UTF-8")
        self.clock = Clock(clock_library, self.folder / "clock")
        self.env.update(self.clock.env)
        self.commands = 0
        self.joined = {}  # host -> Command

    # ---- commands

    def start(self, *words, inside=()):
        return Command(self, list(words), inside)

    def run(self, *words):
        command = self.start(*words)
        command.code = command.wait()
        return command

    def must(self, *words):
        """What a command that must succeed printed."""
        command = self.run(*words)
        if command.code != 0:
            raise Broken(f"dtrain {' '.join(words)}: {command.code}: {command.err()}")
        out = command.out()
        command.forget()
        return out

    def facts(self, *words):
        return json.loads(self.must(*words, "--json"))

    # ---- hosts

    def runner_homes(self):
        return [self.home / "runner"] + [self.folder / f"host{host}"
                                         for host in range(self.network.hosts)]

    def join(self):
        """Starts the runners of further hosts that don't run. Each claims more memory than any
        machine has, so that what asks for it lands there."""
        for host in range(self.network.hosts):
            runner = self.joined.get(host)
            if runner is not None and runner.process.poll() is None:
                continue
            self.joined[host] = self.start(
                "runner", "run", "--join", f"unix:{self.home}/socket", "--home",
                str(self.folder / f"host{host}"), "--address", self.network.address(host),
                "--name", f"host{host}", "--cpus", "4", "--mem", "60TiB",
                inside=self.network.inside(host))

    # ---- its processes

    def is_daemon(self, pid):
        return (processes.command_line(pid)[1:3] == ["daemon", "run"] and
                f"DTRAIN_HOME={self.home}\0".encode() in processes.environment(pid) + b"\0")

    def is_runner(self, pid):
        words = processes.command_line(pid)
        return words[1:3] == ["runner", "run"] and any(
            f"--home {home} " in " ".join(words) + " " for home in self.runner_homes())

    def is_nursery(self, pid):
        words = processes.command_line(pid)
        return (words[1:2] == ["keeper"] and not words[2].strip() and
                self.is_runner(processes.parent_of(pid)))

    def is_keeper(self, pid):
        # Its child looks the same until it becomes a replica, but is none.
        return (self.looks_like_keeper(pid) and
                not self.looks_like_keeper(processes.parent_of(pid)))

    def looks_like_keeper(self, pid):
        words = processes.command_line(pid)
        return words[1:2] == ["keeper"] and "".join(words[2:3]).startswith(str(self.folder))

    def find(self, which):
        return sorted(pid for pid in processes.all_pids() if which(pid))

    def close(self):
        for disk in self.disks.values():
            disk.close()
        shutil.rmtree(self.folder, ignore_errors=True)
