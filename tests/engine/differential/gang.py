"""One training by the program: as many processes as it has workers and servers."""
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

# Longer than any of these trainings on a busy machine; who needs more hangs.
DEADLINE_SECONDS = 180
HAS_AVX512 = "avx512dq" in Path("/proc/cpuinfo").read_text()


class Failed(Exception):
    """A process ended as it should not, or not at all."""


class Gang:
    """`layout`: workers and servers. Ends what it started, at the latest when it goes."""

    def __init__(self, engine, project, spec, layout, output, isa):
        self.engine, self.project, self.spec, self.output, self.isa = engine, project, spec, Path(output), isa
        self.workers, self.servers = layout["workers"], layout["servers"]
        # Bound and not listening: nobody else gets the port, and a listener that may reuse addresses does.
        self.sockets = [reserved_port() for _ in range(self.workers + self.servers)]
        addresses = ["127.0.0.1:%d" % each.getsockname()[1] for each in self.sockets]
        self.cluster = {"worker": addresses[:self.workers]}
        if self.servers:
            self.cluster["ps"] = addresses[self.workers:]
        self.running, self.restarted = {}, False
        self.output.mkdir(parents=True, exist_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.running.values():
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        for each in self.sockets:
            each.close()

    def start(self, attempt="1"):
        for i in range(self.servers):
            self.start_one("ps", i, attempt)
        for i in range(self.workers):
            self.start_one("worker", i, attempt)

    def start_one(self, kind, index, attempt):
        self.restarted = attempt != "1"
        several = self.workers + self.servers > 1
        place = json.dumps({"cluster": self.cluster, "task": {"type": kind, "index": index}}) if several else ""
        environment = {**os.environ, "DTRAIN_ENGINE": json.dumps(self.spec), "TF_CONFIG": place,
                       "OUTPUT_DIR": str(self.output), "EXPERIMENT_ID": "7", "DTRAIN_ATTEMPT": attempt,
                       "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        if self.isa and (self.isa != "zen4" or HAS_AVX512):
            environment["DTRAIN_ISA"] = self.isa
        master = kind == "worker" and index == 0
        with open(self.log(kind, index), "ab") as log:
            self.running[kind, index] = subprocess.Popen(
                [self.engine, "train"], cwd=self.project, env=environment, stderr=log,
                stdout=subprocess.PIPE if master else log, text=True)

    def log(self, kind, index):
        return self.output.parent / f"{self.output.name}.{kind}.{index}"

    def run_until(self, line):
        """The master has printed a line that begins so, or has ended."""
        for each in self.running["worker", 0].stdout:
            if each.startswith(line):
                return

    def run_until_checkpoint(self):
        """One is there, or the master has ended."""
        while self.trains() and not any((self.output / "checkpoints").glob("step-*")):
            try:
                self.running["worker", 0].wait(0.001)
            except subprocess.TimeoutExpired:
                pass

    def trains(self):
        return self.running["worker", 0].poll() is None

    def kill(self, kind=None):
        for (what, index), process in list(self.running.items()):
            if kind in (None, what):
                process.send_signal(signal.SIGKILL)
                process.wait()
                if process.stdout:
                    process.stdout.close()
                del self.running[what, index]

    def finish(self):
        """Until all workers have ended well; servers are told to end then."""
        try:
            for i in range(self.workers):
                process = self.running["worker", i]
                if i == 0:
                    process.communicate(timeout=DEADLINE_SECONDS)
                self.ended("worker", i, process.wait(DEADLINE_SECONDS))
            for i in range(self.servers):
                process = self.running["ps", i]
                process.terminate()
                code = process.wait(DEADLINE_SECONDS)
                # One that was started again may hear of the end before it listens for it.
                self.ended("ps", i, 0 if self.restarted and code == -signal.SIGTERM else code)
        except subprocess.TimeoutExpired:
            raise Failed(f"a process has not ended within {DEADLINE_SECONDS} s; {self.logs()}") from None

    def ended(self, kind, index, code):
        if code != 0:
            raise Failed(f"{kind} {index} ended with {code}; {self.logs()}")

    def logs(self):
        texts = [f"{kind} {index}: {self.log(kind, index).read_text(errors='replace')[-300:].strip()}"
                 for kind, index in sorted(self.running)]
        return " | ".join(texts)


def reserved_port():
    port = socket.socket()
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.bind(("127.0.0.1", 0))
    return port
