"""A Slurm of one's own for the length of a bench: one controller, two nodes, all on the loopback.

Needs the programs of slurmctld, slurmd, slurm-client and munge, and root. Nothing of the machine's own
Slurm is touched: key, sockets, ports and state lie in one temporary folder.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
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


class Slurm:
    def __init__(self, folder):
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing:
            raise RuntimeError(f"no Slurm here: {', '.join(missing)} missing")
        self.folder = pathlib.Path(folder)
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
        self.spawn("munged", "--foreground", "--force", f"--socket={munge}", f"--key-file={key}",
                   f"--pid-file={self.folder}/munge.pid", f"--log-file={self.folder}/munge.log",
                   f"--seed-file={self.folder}/munge.seed")
        self.until(munge.exists, "munged")
        host, (control, *nodes) = socket.gethostname(), free_ports(3)
        lines = [
            "ClusterName=bench", f"SlurmctldHost={host}(127.0.0.1)", "SlurmUser=root",
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
            lines.append(f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=64")
        (self.folder / "state").mkdir()
        pathlib.Path(self.env["SLURM_CONF"]).write_text("\n".join(lines) + "\n")
        self.spawn("slurmctld", "-D")
        for number in range(1, len(nodes) + 1):
            self.spawn("slurmd", "-D", "-N", f"n{number}")
        self.until(lambda: self.idle_nodes() == len(nodes), "the nodes")

    def spawn(self, *words):
        log = open(self.folder / f"{words[0]}.out", "ab")
        self.children.append(subprocess.Popen(words, env=self.env, stdin=subprocess.DEVNULL,
                                              stdout=log, stderr=log))
        log.close()

    def idle_nodes(self):
        found = subprocess.run(["sinfo", "-h", "-N", "-o", "%t"], env=self.env,
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
        for child in reversed(self.children):
            child.send_signal(signal.SIGTERM)
        for child in self.children:
            child.wait()
