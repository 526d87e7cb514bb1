#!/usr/bin/env python3
"""Times what a user of one machine feels: submit, launch, gang, throughput, logs, teardown.

    tests/bench/platform.py [--dtrain build/release/bin/dtrain] [--rounds 5] [--slurm] [--csv FILE] [ROW ...]

Every row is measured beside a peer in the same run, interleaved, and printed as medians and their
ratio; with --slurm beside a Slurm, too. Nothing here passes or fails.
"""

import argparse
import csv
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from slurm import Slurm  # noqa: E402

GANG = 64
EXPERIMENTS = 300
LOG_BYTES = 256 << 20
LINE = b"x" * 99 + b"\n"


class Bench:
    def __init__(self, dtrain, rounds, with_slurm):
        self.dtrain = dtrain
        self.rounds = rounds
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dtrain-bench-"))
        self.env = dict(os.environ, DTRAIN_HOME=str(self.folder / "home"))
        self.rows = []
        self.slurm = Slurm(self.folder / "slurm") if with_slurm else None
        self.run("daemon", "start")

    def close(self):
        if self.slurm:
            self.slurm.close()
        subprocess.run([self.dtrain, "daemon", "stop", "--kill"], env=self.env,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *words, cwd=None, **options):
        return subprocess.run([self.dtrain, *words], env=self.env, cwd=cwd or self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True, **options)

    def project(self, name, yaml, files=None):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "dtrain.yml").write_text(yaml)
        for file, text in (files or {}).items():
            (folder / file).write_text(text)
        return folder

    def row(self, what, unit, ours, peer, peer_name):
        """ours and peer: lists of figures, taken in turns."""
        if not peer:   # no Slurm was asked for
            return
        a, b = statistics.median(ours), statistics.median(peer)
        self.rows.append((what, unit, a, peer_name, b, a / b))
        print(f"{what:<46} {a:>10.2f} {unit:<6} {peer_name:<34} {b:>10.2f} {a / b:>8.2f}x",
              flush=True)


def timed_ms(function):
    start = time.monotonic()
    function()
    return (time.monotonic() - start) * 1e3


def submit(bench):
    folder = bench.project("submit", "project: submit\ntrain: {run: 'true', priority: 0}\n")
    floor = bench.folder / "floor"

    def synced_write():
        with open(floor, "ab") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fdatasync(file.fileno())

    ours, start, disk, sbatch = [], [], [], []
    for _ in range(bench.rounds * 10):
        ours.append(timed_ms(lambda: bench.run("train", "-d", cwd=folder)))
        if bench.slurm:
            sbatch.append(timed_ms(lambda: bench.slurm.run("sbatch", "-o", "/dev/null", "--wrap", "true")))
        start.append(timed_ms(lambda: bench.run("version")))
        disk.append(timed_ms(synced_write))
    bench.row("submit acknowledged (train -d, whole command)", "ms", ours, start,
              "the executable's own start")
    bench.row("  the same", "ms", ours, sbatch, "sbatch")
    bench.row("  the disk's part", "ms", disk, disk, "4 KiB write + fdatasync")


def launch(bench):
    stamp = bench.folder / "stamp"
    command = f"date +%s%N > {stamp}.part; mv {stamp}.part {stamp}"
    folder = bench.project("launch", f"project: launch\ntrain: {{run: '{command}'}}\n")

    def until_stamp(begin):
        stamp.unlink(missing_ok=True)
        start = time.time_ns()
        begin()
        while not stamp.exists():
            time.sleep(0.0002)
        return (int(stamp.read_text()) - start) / 1e6

    ours, bare, srun = [], [], []
    for _ in range(bench.rounds * 4):
        ours.append(until_stamp(lambda: bench.run("train", "-d", cwd=folder)))
        bare.append(until_stamp(lambda: subprocess.run(["sh", "-c", command], check=True)))
        if bench.slurm:
            srun.append(until_stamp(lambda: bench.slurm.run("srun", "-n1", "sh", "-c", command)))
    bench.row("submit to first process running", "ms", ours, bare, "bare sh -c")
    bench.row("  the same", "ms", ours, srun, "srun -n1")


def gang(bench):
    stamps = bench.folder / "stamps"
    command = f"date +%s%N > {stamps}/$DTRAIN_REPLICA"
    folder = bench.project("gang", f"""
project: gang
train:
  framework: tensorflow
  resources: {{cpus: 0.01, mem: 16}}
  tensorflow: {{distributed: {{worker: {GANG}}}}}
  completion: all-workers
  run: '{command}'
""")

    def last_start(begin):
        shutil.rmtree(stamps, ignore_errors=True)
        stamps.mkdir()
        start = time.time_ns()
        begin()
        return (max(int(file.read_text()) for file in stamps.iterdir()) - start) / 1e6

    bare_command = (f"for i in $(seq {GANG}); do DTRAIN_REPLICA=$i sh -c '{command}' & done; wait")
    slurm_command = f"date +%s%N > {stamps}/$SLURM_PROCID"
    ours, bare, srun = [], [], []
    for _ in range(bench.rounds):
        ours.append(last_start(lambda: bench.run("train", cwd=folder)))
        bare.append(last_start(lambda: subprocess.run(["sh", "-c", bare_command], check=True)))
        if bench.slurm:
            srun.append(last_start(
                lambda: bench.slurm.run("srun", f"-n{GANG}", "sh", "-c", slurm_command)))
    bench.row(f"gang of {GANG}, submit to all started", "ms", ours, bare, f"{GANG} bare spawns")
    bench.row("  the same", "ms", ours, srun, f"srun -n{GANG}")


def experiments(bench):
    folder = bench.project("set", f"""
project: set
train:
  resources: {{cpus: 0.01, mem: 16}}
  parameters: {{n: {{range: {{min: 1, max: {EXPERIMENTS}, step: 1}}}}}}
  run: 'true'
""")
    bare_command = f"for i in $(seq {EXPERIMENTS}); do sh -c true & done; wait"
    ours, bare, array = [], [], []
    for _ in range(max(bench.rounds // 2, 1)):
        ours.append(EXPERIMENTS / timed_ms(lambda: bench.run("train", cwd=folder)) * 1e3)
        bare.append(EXPERIMENTS / timed_ms(
            lambda: subprocess.run(["sh", "-c", bare_command], check=True)) * 1e3)
        if bench.slurm:
            array.append(EXPERIMENTS / timed_ms(lambda: bench.slurm.run(
                "sbatch", "--wait", "-o", "/dev/null", f"--array=1-{EXPERIMENTS}", "--wrap", "true")) * 1e3)
    bench.row(f"finished experiments a second (set of {EXPERIMENTS})", "1/s", ours, bare,
              "bare spawns a second")
    bench.row("  the same", "1/s", ours, array, "Slurm job array")


def log_path(bench):
    data = bench.folder / "lines"
    with open(data, "wb") as file:
        for _ in range(LOG_BYTES // (len(LINE) * 1000)):
            file.write(LINE * 1000)
    size = data.stat().st_size
    folder = bench.project("logs", f"project: logs\ntrain: {{run: 'cat {data}'}}\n")
    ours, bare, srun = [], [], []
    for _ in range(max(bench.rounds // 2, 1)):
        if bench.slurm:
            srun.append(size / 1e3 / timed_ms(lambda: bench.slurm.run("srun", "-n1", "cat", str(data))))
        ours.append(size / 1e3 / timed_ms(lambda: subprocess.run(
            [bench.dtrain, "train"], env=bench.env, cwd=folder, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, check=True)))
        bare.append(size / 1e3 / timed_ms(
            lambda: subprocess.run(["sh", "-c", f"cat {data} | cat > {bench.folder}/copy; "
                                    f"sync -d {bench.folder}/copy"], check=True)))
    bench.row("log path, process to CLI, 100-byte lines", "MB/s", ours, bare, "cat | cat > file; sync")
    bench.row("  the same", "MB/s", ours, srun, "srun -n1")


def latency(bench):
    program = ("import time\n"
               "for _ in range(200):\n"
               "    time.sleep(0.01)\n"
               "    print(time.monotonic_ns(), flush=True)\n")
    folder = bench.project("latency", "project: latency\ntrain: {run: 'python3 print.py'}\n",
                           {"print.py": program})

    def delays(words, cwd):
        found = []
        with subprocess.Popen(words, env=bench.env, cwd=cwd, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True) as process:
            for line in process.stdout:
                now = time.monotonic_ns()
                word = line.split()[-1] if line.split() else ""
                if word.isdigit() and len(word) > 6:
                    found.append((now - int(word)) / 1e6)
        return found

    ours = delays([bench.dtrain, "train"], folder)
    bare = delays(["python3", "print.py"], folder)
    bench.row("line printed to line seen, median", "ms", ours, bare, "bare pipe")
    quantile = lambda values: statistics.quantiles(values, n=100)[98]
    bench.row("line printed to line seen, p99", "ms", [quantile(ours)], [quantile(bare)], "bare pipe")


def teardown(bench):
    stamp = bench.folder / "ended"
    program = f"""
import json, os, signal, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
if task["type"] == "ps":
    signal.pause()
time.sleep(0.3)
with open({str(stamp)!r}, "w") as file:
    file.write(str(time.time_ns()))
"""
    folder = bench.project("teardown", """
project: teardown
train:
  framework: tensorflow
  resources: {cpus: 0.05, mem: 16}
  tensorflow: {distributed: {worker: 1, ps: 4}}
  run: python3 end.py
""", {"end.py": program})
    ours, bare = [], []
    for _ in range(bench.rounds):
        bench.run("train", cwd=folder)
        ours.append((time.time_ns() - int(stamp.read_text())) / 1e6)
        child = subprocess.Popen(["python3", "-c", "import signal; signal.pause()"])
        time.sleep(0.1)
        start = time.time_ns()
        child.send_signal(signal.SIGTERM)
        child.wait()
        bare.append((time.time_ns() - start) / 1e6)
    bench.row("master's last act to `train` back at the prompt", "ms", ours, bare,
              "TERM and wait for one python")


ROWS = {"submit": submit, "launch": launch, "gang": gang, "experiments": experiments,
        "log_path": log_path, "latency": latency, "teardown": teardown}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--dtrain", default=str(root / "build/release/bin/dtrain"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slurm", action="store_true", help="start a Slurm to compare with; as root")
    parser.add_argument("--csv")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}")
    arguments = parser.parse_args()
    for name in arguments.rows:
        if name not in ROWS:
            parser.error(f"no row {name}; there are {', '.join(ROWS)}")
    if not os.access(arguments.dtrain, os.X_OK):
        sys.exit(f"{arguments.dtrain} is not there: build the release preset first")
    bench = Bench(arguments.dtrain, arguments.rounds, arguments.slurm)
    try:
        print(f"{'what':<46} {'dtrain':>10} {'':<6} {'peer':<34} {'':>10} {'ratio':>9}")
        for name in arguments.rows or ROWS:
            ROWS[name](bench)
    finally:
        bench.close()
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["what", "unit", "dtrain", "peer", "peer_figure", "ratio"])
            writer.writerows(bench.rows)


if __name__ == "__main__":
    main()
