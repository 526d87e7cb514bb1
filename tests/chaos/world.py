"""Plays one round: does what the plan says, then lets everything end, then looks."""
import dataclasses
import json
import select
import shutil
import time

import checks as promises
import leftovers
import witness
from faults import Faults, Harm


@dataclasses.dataclass
class Entry:
    """A submission on its way, and what was seen of it."""
    submission: object
    command: object = None
    id: str | None = None      # once it was accepted
    harm: Harm = dataclasses.field(default_factory=Harm)
    followers: list = dataclasses.field(default_factory=list)
    waited: int | None = None  # the exit code of dtrain wait


class World:
    def __init__(self, cluster, plan, checks, say):
        self.cluster = cluster
        self.plan = plan
        self.checks = checks
        self.say = say
        self.faults = Faults(cluster, say)
        self.entries = [Entry(each) for each in plan.submissions]
        self.commands = []     # running beside: (Command, what to do with its end)

    # ---- the round

    def play(self):
        self.write_project()
        begin = time.monotonic()
        for action in self.plan.actions:
            self.pass_time(begin + action.at_ms / 1000)
            self.say(f"{action.at_ms} ms: {action.name} {action.number} {action.for_ms}")
            self.do(action)
        self.settle()
        self.look()

    def write_project(self):
        for each in self.cluster.project.iterdir():
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            elif each.name != "replica.py":
                each.unlink()
        for each in self.plan.submissions:
            (self.cluster.project / f"{each.key}.yml").write_text(each.yaml)
            facts = {"seed": self.plan.seed, "members": each.members}
            (self.cluster.project / f"{each.key}.json").write_text(json.dumps(facts))

    def pass_time(self, until):
        """To a moment of the plan; meanwhile what was paused goes on when its time has come."""
        while True:
            next_undo = self.faults.mend()
            self.collect()
            self.cluster.join()
            now = time.monotonic()
            if now >= until:
                return
            select.select([], [], [], max(0, min(until, next_undo or until, now + 0.1) - now))

    def do(self, action):
        entries = self.entries
        if action.name == "submit":
            self.submit(entries[action.number])
        elif action.name == "follow":
            self.follow(entries[action.number])
        elif action.name == "dtrain kill":
            self.kill(entries[action.number % len(entries)], action.number)
        elif action.name == "kill cli":
            running = [command for command, _ in self.commands if command.process.poll() is None]
            if running:
                running[action.number % len(running)].kill()
        elif action.name == "stop daemon":
            stop = self.cluster.start("daemon", "stop")
            self.commands.append((stop, lambda command: self.start_daemon()))
        else:
            self.faults.do(action)

    # ---- commands beside the round

    def submit(self, entry):
        each = entry.submission
        words = ["train", "-f", f"{each.key}.yml", "--name", each.key, "--json"]
        entry.command = self.cluster.start(*words, *([] if each.follow else ["-d"]))
        if each.follow:
            entry.followers.append(entry.command)
        self.commands.append((entry.command, lambda command: self.accepted(entry)))

    def accepted(self, entry):
        """Taken from what the CLI printed so far: the first line names the experiment."""
        line = entry.command.out().split(b"\n")[0]
        if entry.id is None and line.endswith(b"}"):
            entry.id = json.loads(line)["id"].partition(".")[0]
            self.say(f"{entry.submission.key} is {entry.id}")

    def follow(self, entry):
        if entry.id is None:
            return
        command = self.cluster.start("logs", "-f", "--json", entry.id)
        entry.followers.append(command)
        self.commands.append((command, lambda command: None))

    def kill(self, entry, number):
        if entry.id is None:
            return
        members = list(entry.submission.members)
        target = entry.id
        if members != ["0"] and number % 2:
            target += f".{members[number // 2 % len(members)]}"
        entry.harm.kill_tried = True
        words = ["kill", "--json", target] + (["--force"] if number % 3 == 0 else [])
        self.commands.append((self.cluster.start(*words),
                              lambda command: self.killed(entry, command)))

    def killed(self, entry, command):
        facts = command.facts()
        for item in facts["killed"] if facts and "killed" in facts else []:
            self.say(f"kill {item}")
            # Of a set some members may be over; --force may come to what is ending already.
            alone = "." in item["id"] or list(entry.submission.members) == ["0"]
            if alone and not item["already_over"] and "--force" not in command.words:
                entry.harm.kill_taken.add(item["id"])

    def start_daemon(self):
        start = self.cluster.start("daemon", "start")
        self.commands.append((start, lambda command: None))

    def collect(self):
        for entry in self.entries:
            if entry.command is not None:
                self.accepted(entry)
        for pair in list(self.commands):
            if pair[0].process.poll() is not None:
                self.commands.remove(pair)
                pair[1](pair[0])

    # ---- the end

    def settle(self):
        """Nothing is paused, everything runs, and every experiment has ended."""
        cluster = self.cluster
        self.faults.mend(all_of_it=True)
        cluster.join()
        while any(command.words[0] not in ("logs", "train") for command, _ in self.commands):
            for command, _ in list(self.commands):
                if command.words[0] not in ("logs", "train"):
                    command.wait()
            self.collect()
        cluster.must("daemon", "start")
        for entry in self.entries:
            if entry.command is not None and not entry.submission.follow:
                entry.command.wait()
        self.collect()
        promises.known(self.checks, cluster, self.entries)
        self.entries = [entry for entry in self.entries if entry.id is not None]
        for entry in self.entries:
            if not entry.submission.ender:
                entry.harm.kill_tried = True
                cluster.must("kill", entry.id)
        for entry in self.entries:
            wait = cluster.run("wait", entry.id)
            state = cluster.facts("status", entry.id)["state"]
            self.checks.that(state in promises.TERMINAL, "what was accepted ends", entry.id, state,
                             wait.code, wait.err())
            entry.waited = wait.code
        for command, _ in list(self.commands):
            command.wait()
        self.collect()

    def look(self):
        cluster, checks = self.cluster, self.checks
        left = leftovers.wait_for_none(leftovers.of_launches, cluster)
        checks.that(not left, "nothing of a launch is left", *left)
        told = witness.read_all(cluster.folder / "witness")
        promises.starts_seen(checks, told)
        for entry in self.entries:
            harm = entry.harm
            harm.keepers = {one for one in self.faults.killed_keepers
                            if one.partition(".")[0] == entry.id}
            harm.struck = {one for one in self.faults.struck if one.partition(".")[0] == entry.id}
            harm.filled = self.faults.filled
            mine = [each for each in told if each.experiment.partition(".")[0] == entry.id]
            promises.ends(checks, cluster, entry, harm, mine)
            promises.output(checks, cluster, entry, harm, mine, self.plan.seed)
            promises.stream(checks, cluster, entry, harm, entry.followers)
            promises.codes(checks, cluster, entry)
        promises.resources(checks, cluster)
        if checks.broken:
            return  # all of it is kept
        for path in (cluster.folder / "witness").iterdir():
            path.unlink()
        for path in (cluster.folder / "commands").iterdir():
            if ".runner." not in path.name:
                path.unlink()
