#!/usr/bin/env python3
"""Shows what grows: memory and disk while experiments end, wait, print and return by the thousand.

    tests/bench/scale.py [--dtrain build/release/bin/dtrain] [--size N] [ROW ...]

Each row has a dtrain of its own, below the temporary folder, and looks at its processes from
outside. Nothing here passes or fails.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time


class Home:
    """One dtrain of its own, ended and deleted with the row."""

    def __init__(self, dtrain, config=""):
        self.dtrain = dtrain
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dtrain-scale-"))
        self.root = self.folder / "home"
        self.root.mkdir()
        (self.root / "config.yml").write_text(config)
        self.env = dict(os.environ, DTRAIN_HOME=str(self.root))

    def __enter__(self):
        self.run("daemon", "start")
        return self

    def __exit__(self, *_):
        subprocess.run([self.dtrain, "daemon", "stop", "--kill"], env=self.env,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def project(self, name, text):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "dtrain.yml").write_text(f"project: {name}\n{text}")
        return folder

    def run(self, *words, cwd=None):
        done = subprocess.run([self.dtrain, *words], env=self.env, cwd=cwd or self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            sys.exit(f"dtrain {' '.join(words)}: {done.stderr.decode()}")
        return done.stdout

    def end_of(self, number):
        """However it ends."""
        subprocess.run([self.dtrain, "wait", number], env=self.env, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def ask(self, *words):
        return json.loads(self.run(*words, "--json"))

    def submit(self, folder):
        return self.ask_in(folder, "train", "-d")["id"]

    def ask_in(self, folder, *words):
        return json.loads(self.run(*words, "--json", cwd=folder))

    def pid(self, which):
        path = {"daemon": "daemon.lock", "runner": "runner/lock"}[which]
        try:
            return int((self.root / path).read_text())
        except (OSError, ValueError):
            return 0

    def memory_mib(self, which):
        return memory_mib(self.pid(which))

    def keepers(self):
        """By their command lines: a keeper names its launch, which is below our home."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[1:2] == [b"keeper"] and str(self.root).encode() in b" ".join(words):
                found.append(int(entry.name))
        return found

    def kib(self, *below):
        """What the disk gives for it, in KiB."""
        path = self.root.joinpath(*below)
        if not path.exists():
            return 0
        return int(subprocess.run(["du", "-sk", path], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL).stdout.split()[0])


def memory_mib(pid):
    """What is in memory and not from a file: what the process itself took."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def timed_ms(function):
    start = time.monotonic()
    function()
    return (time.monotonic() - start) * 1e3


def until(what, pause=0.001):
    """Seconds until it holds."""
    start = time.monotonic()
    while not what():
        time.sleep(pause)
    return time.monotonic() - start


def table(head, widths=(34, 12)):
    print(f"{head[0]:<{widths[0]}}" + "".join(f"{word:>{widths[1]}}" for word in head[1:]),
          flush=True)


def disk_line(home, what):
    table([what, f"{home.memory_mib('daemon'):.1f}", f"{home.memory_mib('runner'):.1f}",
           home.kib(), home.kib("db") + home.kib("db-wal"), home.kib("logs"), home.kib("outputs"),
           home.kib("runner")])


def ended(dtrain, size):
    """Experiments that end, one submission each; then again with what ended forgotten."""
    size = size or 10_000
    with Home(dtrain) as home:
        folder = home.project("ended", "train: {run: 'true', resources: {cpus: 0.01, mem: 16}}\n")
        head = ["ended", "daemon MiB", "runner MiB", "home KiB", "db KiB", "logs KiB",
                "outputs KiB", "runner KiB"]
        table(head)

        def rounds(after):
            disk_line(home, "0")
            for done in range(10):
                last = ""
                for _ in range(size // 10):
                    last = home.submit(folder)
                home.run("wait", last)
                until(lambda: not home.ask("status")["experiments"], 0.05)
                after()
                disk_line(home, str(size // 10 * (done + 1)))

        rounds(lambda: None)
        print("the same, each tenth forgotten at its end (dtrain prune --older-than 1s)")
        home.run("prune", "--older-than", "1s", "--yes")
        rounds(lambda: home.run("prune", "--older-than", "1s", "--yes"))


def members(dtrain, size):
    """A set, of which one after the other ends."""
    size = size or 10_000
    with Home(dtrain) as home:
        folder = home.project("members", f"""
train:
  resources: {{cpus: 0.01, mem: 16}}
  parameters: {{n: {{range: {{min: 1, max: {size}, step: 1}}}}}}
  run: 'true'
""")
        table(["members ended", "daemon MiB", "runner MiB", "home KiB", "db KiB", "logs KiB",
               "outputs KiB", "runner KiB"])
        disk_line(home, "0")
        number = home.submit(folder)
        step = size // 5
        for part in range(1, 5):
            until(lambda: ended_members(home, number) >= step * part, 0.5)
            disk_line(home, str(ended_members(home, number)))
        home.run("wait", number)
        until(lambda: not home.ask("status")["experiments"], 0.05)
        disk_line(home, f"{size}, the set is over")
        for seconds in (5, 10):
            time.sleep(5)
            disk_line(home, f"{seconds} s later")


def ended_members(home, number):
    for each in home.ask("status", "-a")["experiments"]:
        if each["id"] == number:
            return each["set"]["finished"]
    return 0


def queued(dtrain, size):
    """A set that waits."""
    size = size or 200_000
    with Home(dtrain, "host: {cpus: 1, mem: 1GiB}\n") as home:
        folder = home.project("queued", f"""
train:
  resources: {{cpus: 1, mem: 64}}
  parameters:
    a: {{range: {{min: 1, max: {size // 1000}, step: 1}}}}
    b: {{range: {{min: 1, max: 1000, step: 1}}}}
  run: 'exec sleep 100000'
""")
        table(["members that wait", str(size)])
        table(["daemon before, MiB", f"{home.memory_mib('daemon'):.1f}"])
        table(["submit (train -d), ms", f"{timed_ms(lambda: home.submit(folder)):.0f}"])
        until(lambda: home.ask("daemon", "status")["replicas_running"] == 1, 0.05)
        table(["daemon after, MiB", f"{home.memory_mib('daemon'):.1f}"])

        def ask(*words):
            spent = [timed_ms(lambda: home.run(*words)) for _ in range(20)]
            table([f"dtrain {' '.join(words)}, median ms", f"{statistics.median(spent):.1f}",
                   f"max {max(spent):.1f}"])

        ask("status")
        ask("why", "1.2")
        ask("status", "1.77")
        ask("daemon", "status")
        ask("status", "1")
        table(["daemon after these, MiB", f"{home.memory_mib('daemon'):.1f}"])
        end_one = timed_ms(lambda: home.run("kill", "1.1"))
        table(["dtrain kill of the one that runs, ms", f"{end_one:.0f}"])
        for _ in range(3):
            os.kill(home.pid("daemon"), signal.SIGKILL)
            spent = timed_ms(lambda: home.run("status"))
            table(["kill -9, then dtrain status, ms", f"{spent:.0f}",
                   f"{home.memory_mib('daemon'):.1f} MiB"])
        table(["dtrain kill of all, ms", f"{timed_ms(lambda: home.run('kill', '1')):.0f}"])
        spent = timed_ms(lambda: home.end_of("1"))
        table(["until all are over, s", f"{spent / 1e3:.1f}"])
        table(["daemon after, MiB", f"{home.memory_mib('daemon'):.1f}"])


def flood(dtrain, size):
    """Replicas that print as fast as they can, one follower that reads and one that doesn't."""
    seconds = size or 180
    line = "x" * 99
    with Home(dtrain, "spool-limit: 256MiB\n") as home:
        folder = home.project("flood", f"""
train:
  framework: tensorflow
  resources: {{cpus: 0.5, mem: 64}}
  tensorflow: {{distributed: {{worker: 2}}}}
  completion: all-workers
  run: 'timeout {seconds} yes {line}; true'
""")
        number = home.submit(folder)
        until(lambda: home.ask("daemon", "status")["replicas_running"] == 2, 0.05)
        follow = [dtrain, "logs", "-f", "--raw", number]
        stalled = subprocess.Popen(follow, env=home.env, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        stalled.send_signal(signal.SIGSTOP)
        reader = subprocess.Popen([*follow[:-1], f"{number}.master"], env=home.env, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL)
        read = [0]   # bytes

        def drain():
            while chunk := reader.stdout.read(1 << 20):
                read[0] += len(chunk)

        thread = threading.Thread(target=drain)
        thread.start()
        table(["second", "daemon MiB", "runner MiB", "keeper MiB", "logs MiB", "spool MiB",
               "stalled MiB", "reader MiB", "read MB"])
        start = time.monotonic()
        step = max(seconds // 10, 1)
        for look in range(1, 11):
            time.sleep(max(start + look * step - time.monotonic(), 0))
            keepers = [memory_mib(pid) for pid in home.keepers()]
            table([f"{look * step}", f"{home.memory_mib('daemon'):.1f}",
                   f"{home.memory_mib('runner'):.1f}", f"{max(keepers, default=0):.1f}",
                   home.kib("logs") >> 10, home.kib("runner") >> 10,
                   f"{memory_mib(stalled.pid):.1f}", f"{memory_mib(reader.pid):.1f}",
                   read[0] // 1_000_000])
        home.run("wait", number)
        table(["until all is durable, s", f"{time.monotonic() - start:.1f}"])
        table(["logs, MB/s", f"{home.kib('logs') / 977 / (time.monotonic() - start):.0f}"])
        thread.join(seconds)   # it may be far behind, with so much else to do
        table(["read by the follower, MB/s", f"{read[0] / 1e6 / (time.monotonic() - start):.0f}"])
        lost, cut, odd = losses(home, f"{number}.master", line)
        table(["declared losses, lines cut by them, other odd lines", lost, cut, odd])
        for process in (stalled, reader):
            process.kill()
            process.wait()
        thread.join()
        table(["daemon after, MiB", f"{home.memory_mib('daemon'):.1f}"])


def losses(home, replica, line):
    """Where output was lost, and only there, a line is not as it was printed; and at its end."""
    logs = subprocess.Popen([home.dtrain, "logs", "--json", replica], env=home.env,
                            stdout=subprocess.PIPE)
    odd = subprocess.run(["grep", "-nvF", f'"text":"{line}"'], stdin=logs.stdout,
                         stdout=subprocess.PIPE).stdout
    logs.wait()
    lost, others, states = set(), [], set()
    for number, _, item in (text.partition(":") for text in odd.decode().splitlines()):
        kind = json.loads(item)["type"]
        if kind == "lost":
            lost.add(int(number))
        elif kind == "log":
            others.append(int(number))
        else:
            states.add(int(number))
    if others and set(range(others[-1] + 1, max(states) + 1)) <= states:
        others.pop()   # the signal that ended it came in the middle of a line
    cut = sum(number - 1 in lost or number + 1 in lost for number in others)
    return len(lost), cut, len(others) - cut


def restart(dtrain, size):
    """Sleepers all running, and what looks after them killed."""
    size = size or 1_000
    with Home(dtrain, "host: {cpus: 1000, mem: 1000GiB}\n") as home:
        folder = home.project("restart", f"""
train:
  resources: {{cpus: 0.01, mem: 16}}
  parameters: {{n: {{range: {{min: 1, max: {size}, step: 1}}}}}}
  run: 'exec sleep 100000'
""")
        start = time.monotonic()
        home.submit(folder)
        until(lambda: home.ask("daemon", "status")["replicas_running"] == size, 0.05)
        table([f"{size} sleepers running after, s", f"{time.monotonic() - start:.1f}"])
        table(["daemon, runner, MiB", f"{home.memory_mib('daemon'):.1f}",
               f"{home.memory_mib('runner'):.1f}"])
        keepers = [memory_mib(pid) for pid in home.keepers()]
        table(["a keeper, MiB", f"{statistics.median(keepers):.2f}"])

        def pids():
            return {each["id"]: each["attempt"] for each in home.ask("status", "1")["members"]}

        def attached():
            if not home.pid("daemon"):
                return False
            said = subprocess.run([dtrain, "daemon", "status", "--json"], env=home.env,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
            status = json.loads(said or "{}")
            return (status.get("hosts_connected") == 1
                    and status["replicas_running"] == size)

        before, running = pids(), set(home.keepers())

        def again(what, *killed):
            spent, first = [], []
            for _ in range(2):
                old = {which: home.pid(which) for which in killed}
                start = time.monotonic()
                for which in killed:
                    os.kill(old[which], signal.SIGKILL)
                home.run("status")
                first.append(time.monotonic() - start)
                until(lambda: all(home.pid(which) != old[which] for which in killed))
                until(attached)
                spent.append(time.monotonic() - start)
                time.sleep(31)   # past what calls a runner healthy: no backoff is measured here
            same = pids() == before and set(home.keepers()) == running
            table([f"{what} killed, all attached, s", f"{statistics.median(spent):.2f}",
                   f"max {max(spent):.2f}", f"{statistics.median(first):.2f}",
                   "all go on" if same else "NOT ALL GO ON"])

        table(["", "median", "", "answers"])
        again("daemon", "daemon")
        again("runner", "runner")
        again("both", "daemon", "runner")
        for nth in range(1, 7):
            os.kill(home.pid("daemon"), signal.SIGKILL)
            answered = timed_ms(lambda: home.run("status"))
            table([f"kill {nth} in a row, status ms", f"{answered:.0f}",
                   f"attached {until(attached):.2f} s"])
        spent = timed_ms(lambda: home.run("daemon", "stop", "--kill"))
        table(["daemon stop --kill, s", f"{spent / 1e3:.2f}"])


ROWS = {"ended": ended, "members": members, "queued": queued, "flood": flood, "restart": restart}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--dtrain", default=str(root / "build/release/bin/dtrain"))
    parser.add_argument("--size", type=int, help="experiments, members, seconds: of each row")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}")
    arguments = parser.parse_args()
    arguments.dtrain = os.path.abspath(arguments.dtrain)
    for name in arguments.rows:
        if name not in ROWS:
            parser.error(f"no row {name}; there are {', '.join(ROWS)}")
    if not os.access(arguments.dtrain, os.X_OK):
        sys.exit(f"{arguments.dtrain} is not there: build the release preset first")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))   # what was begun is cleaned up
    for name in arguments.rows or ROWS:
        print(f"-- {name}", flush=True)
        ROWS[name](arguments.dtrain, arguments.size)


if __name__ == "__main__":
    main()
