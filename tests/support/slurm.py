#!/usr/bin/env python3
"""A Slurm of one's own: one controller and two nodes.

    slurm.py FOLDER [NETNS NETNS NETNS]    runs it until TERM; prints "ready" once its nodes are idle

Without network namespaces all of it is on the loopback; with three of them, as tests/support/network.h makes them, the
controller is at 10.66.0.1 in the first and the nodes in the others. Needs the programs of slurmctld, slurmd,
slurm-client and munge, and root. Nothing of the machine's own Slurm is touched: key, sockets, ports and state lie in
the folder; FOLDER/slurm.conf is what SLURM_CONF names.
"""

import ctypes
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "sinfo")
START_SECONDS = 30


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def end_with_parent():
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


class Slurm:
    def __init__(self, folder, namespaces=()):
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing:
            raise RuntimeError(f"no Slurm here: {', '.join(missing)} missing")
        self.folder = pathlib.Path(folder)
        self.namespaces = list(namespaces)
        self.addresses = [f"10.66.0.{number + 1}" for number in range(3)] if namespaces else ["127.0.0.1"] * 3
        self.children = []
        self.env = dict(os.environ, SLURM_CONF=str(self.folder / "slurm.conf"))
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self):
        self.folder.mkdir(mode=0o755)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        munge = self.folder / "munge.socket"
        self.spawn(0, "munged", "--foreground", "--force", f"--socket={munge}", f"--key-file={key}",
                   f"--pid-file={self.folder}/munge.pid", f"--log-file={self.folder}/munge.log",
                   f"--seed-file={self.folder}/munge.seed")
        self.until(munge.exists, "munged")
        host, (control, *nodes) = socket.gethostname(), free_ports(3)
        lines = [
            "ClusterName=own", f"SlurmctldHost={host}({self.addresses[0]})", "SlurmUser=root",
            "AuthType=auth/munge", f"AuthInfo=socket={munge}", "CryptoType=crypto/munge",
            f"SlurmctldPort={control}", f"StateSaveLocation={self.folder}/state",
            f"SlurmctldPidFile={self.folder}/slurmctld.pid", f"SlurmdPidFile={self.folder}/%n.pid",
            f"SlurmdSpoolDir={self.folder}/%n", "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none", "SchedulerType=sched/backfill", "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core", "SlurmdParameters=config_overrides",
            "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1",
            "AccountingStorageType=accounting_storage/none", "JobAcctGatherType=jobacct_gather/none",
            "MpiDefault=none", "MaxArraySize=2000", "ReturnToService=2",
            "PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP",
        ]
        for number, port in enumerate(nodes, 1):
            (self.folder / f"n{number}").mkdir()
            lines.append(f"NodeName=n{number} NodeHostname={host} NodeAddr={self.addresses[number]} Port={port} CPUs=64 "
                         "RealMemory=65536")
        (self.folder / "state").mkdir()
        pathlib.Path(self.env["SLURM_CONF"]).write_text("\n".join(lines) + "\n")
        self.spawn(0, "slurmctld", "-D")
        for number in range(1, len(nodes) + 1):
            self.spawn(number, "slurmd", "-D", "-N", f"n{number}")
        self.until(lambda: self.idle_nodes() == len(nodes), "the nodes")

    def at(self, place):
        return ["nsenter", f"--net={self.namespaces[place]}"] if self.namespaces else []

    def spawn(self, place, *words):
        log = open(self.folder / f"{words[0]}.out", "ab")
        self.children.append(subprocess.Popen([*self.at(place), *words], env=self.env, stdin=subprocess.DEVNULL,
                                              stdout=log, stderr=log, preexec_fn=end_with_parent))
        log.close()

    def end_jobs(self):
        """Else what they run would outlive it."""
        said = subprocess.run([*self.at(0), "scancel", f"--user={os.getuid()}"], env=self.env, timeout=START_SECONDS)
        deadline = time.monotonic() + START_SECONDS
        while said.returncode == 0 and time.monotonic() < deadline:
            left = subprocess.run([*self.at(0), "squeue", "--noheader"], env=self.env, stdout=subprocess.PIPE,
                                  timeout=START_SECONDS)
            if not left.stdout.strip():
                return
            time.sleep(0.05)

    def idle_nodes(self):
        found = subprocess.run([*self.at(0), "sinfo", "-h", "-N", "-o", "%t"], env=self.env,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return found.stdout.split().count("idle")

    def until(self, there, what):
        deadline = time.monotonic() + START_SECONDS
        while not there():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what} did not come up; see {self.folder}")
            time.sleep(0.05)

    def run(self, *words):
        return subprocess.run(words, env=self.env, cwd=self.folder, check=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def close(self):
        if len(self.children) > 2:
            self.end_jobs()
        for child in reversed(self.children):
            child.send_signal(signal.SIGTERM)
            child.wait()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    slurm = Slurm(sys.argv[1], sys.argv[2:])
    try:
        print("ready", flush=True)
        signal.pause()
    finally:
        slurm.close()


if __name__ == "__main__":
    main()
