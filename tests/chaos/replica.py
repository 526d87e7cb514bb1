"""What the replicas of a chaos round run; the checker imports line_of() to know what they printed.

    replica.py WITNESS-FOLDER PLAN-FILE

A replica tells the observer of itself past dtrain: it locks a file of its own (every process it
leaves behind holds that lock too), writes down its start and its end, and counts in shared memory
which line it began and which one it has written, so that a SIGKILL loses neither number.
"""
import fcntl
import json
import mmap
import os
import random
import signal
import struct
import sys
import time

COUNTS = struct.Struct("<QQ")  # lines begun, lines written


def line_of(seed, replica, start, number, kind):
    """The bytes of one line. `start` counts the starts of this replica, whatever their attempts."""
    head = f"{replica}#{start} {number} ".encode()
    if kind == "plain":
        return head + b"\n"
    dice = random.Random(f"{seed} {replica} {start} {number}")
    if kind == "long":
        return head + b"x" * dice.choice((80, 4000, 70_000)) + b"\n"
    return head + dice.randbytes(dice.randrange(200)).replace(b"\n", b"\r") + b"\n"  # garbage


def identity(pid):
    """A process number alone may be given again; with the time of its start it may not."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return f"{pid} {file.read().rpartition(b')')[2].split()[19].decode()}"


class Witness:
    def __init__(self, folder, replica, attempt):
        lock = os.open(f"{folder}/{replica}.lock", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.set_inheritable(lock, True)
        self.file = os.open(f"{folder}/{replica}@{attempt}",
                            os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.say("beside", identity(os.getpid()))
        os.write(lock, b".")
        self.start = os.fstat(lock).st_size
        self.say("start", identity(os.getpid()), self.start, time.clock_gettime_ns(
            time.CLOCK_BOOTTIME), os.environ.get("DTRAIN_KEY", "none"))
        counts = os.open(f"{folder}/{replica}@{attempt}.counts", os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(counts, COUNTS.size)
        self.counts = mmap.mmap(counts, COUNTS.size)
        os.close(counts)

    def say(self, *words):
        os.write(self.file, (" ".join(str(word) for word in words) + "\n").encode())

    def count(self, begun, written):
        COUNTS.pack_into(self.counts, 0, begun, written)


def write_all(data):
    while data:
        data = data[os.write(1, data):]


def leave_behind(witness, how):
    """A process that outlives the main one, each way of hiding from whoever ends the tree."""
    if os.fork() != 0:
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if how in ("daemon", "bare"):
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
    if how in ("deaf", "daemon", "bare"):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    witness.say("child", identity(os.getpid()))
    if how == "bare":  # nothing but its control group tells whose it is
        os.closerange(0, 1024)
        os.execve("/bin/sleep", ["sleep", "1000"], {})
    while True:
        signal.pause()


def main():
    folder, plan_file = sys.argv[1:3]
    replica, attempt = os.environ["DTRAIN_REPLICA"], int(os.environ["DTRAIN_ATTEMPT"])
    witness = Witness(folder, replica, attempt)
    with open(plan_file) as file:
        plan = json.load(file)
    experiment = os.environ["EXPERIMENT_ID"]
    member = experiment.partition(".")[2] or "0"
    me = plan["members"][member][replica[len(experiment) + 1:]]

    main_pid, ended = os.getpid(), []

    def end(code):
        if os.getpid() != main_pid:
            os._exit(code)  # a child that has not yet taken off our handler
        if ended:
            return  # TERM came between our last line and our exit
        ended.append(code)
        witness.say("end", code)
        os._exit(code)

    if me["deaf"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: end(143))
    for how in me["leaves"]:
        leave_behind(witness, how)
    for number in range(me["lines"]):
        witness.count(number + 1, number)
        write_all(line_of(plan["seed"], replica, witness.start, number, me["kind"]))
        witness.count(number + 1, number + 1)
        if number % me["burst"] == 0:
            time.sleep(me["pause_ms"] / 1000)
    if me["shuts"]:
        os.close(1)
        os.close(2)
    if me["holds"]:
        witness.say("holds")
        while True:
            signal.pause()
    codes = me["codes"]  # of the first start, the second...; the last one repeats
    end(codes[min(witness.start, len(codes)) - 1])


if __name__ == "__main__":
    main()
