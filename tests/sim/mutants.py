#!/usr/bin/env python3
"""Breaks the guards of the scheduling core one at a time and sees that the simulation notices.

For each mutant the core is built anew, and the simulation is run; where it sees nothing, the unit tests
of the core are. Prints a table and returns 1 when a mutant survived. By hand only: a build a mutant.

    tests/sim/mutants.py [--work DIR] [WORD...]     only mutants whose description has each WORD
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAUNCH, HOSTS = "daemon/lifecycle_launch.cc", "daemon/lifecycle_hosts.cc"
OUTCOME, TURN = "daemon/lifecycle_outcome.cc", "daemon/lifecycle_turn.cc"
TABLE, QUEUE, MODEL = "daemon/lifecycle.cc", "daemon/queue.cc", "daemon/model.cc"
PLACEMENT, FREE = "daemon/placement.cc", "daemon/placement_free.cc"

# What it breaks; in which file; the exact text, which occurs once; what it becomes.
MUTANTS = [
    ("a replica's messages of any attempt count", TABLE,
     "if (found == experiment.replicas.end() || found->attempt != attempt) return nullptr;",
     "if (found == experiment.replicas.end() || attempt == 0) return nullptr;"),
    ("a launch's messages of any attempt count", LAUNCH,
     "if (replica.attempt != attempt || replica.seat.host != host || replica.lost) continue;",
     "if (attempt == 0 || replica.seat.host != host || replica.lost) continue;"),
    ("Start is sent once for each replica, not for each launch", HOSTS,
     "      started.insert(replica.attempt).second) {",
     "      (started.insert(replica.attempt).second || true)) {"),
    ("Start is not repeated to a runner that comes back", HOSTS,
     "  if (replica.progress == Progress::Prepared && start_committed(experiment, replica) &&",
     "  if (false && start_committed(experiment, replica) &&"),
    ("Go is said when one host is prepared", LAUNCH,
     "             std::all_of(experiment->replicas.begin(), experiment->replicas.end(),\n"
     "                         [](const Replica& r) { return r.progress == Progress::Prepared; })",
     "             std::any_of(experiment->replicas.begin(), experiment->replicas.end(),\n"
     "                         [](const Replica& r) { return r.progress == Progress::Prepared; })"),
    ("Start is sent without Go", LAUNCH,
     "  experiment.phase = Phase::Go;\n", ""),
    ("what a Hello changes is not stored", HOSTS,
     "  turn.touched.at(id).save = before != *experiment;",
     "  turn.touched.at(id).save = false;"),
    ("the next attempt does not wait for Released", TABLE,
     "      if (!std::all_of(replicas.begin(), replicas.end(), can_have_no_live_copy)) break;\n",
     ""),
    ("a lost replica without a lease counts as dead", TABLE,
     "  return replica.lost && (replica.lease_ms > 0 || replica.progress == Progress::Exited);",
     "  return replica.lost;"),
    ("a host is lost without the lease's margin", HOSTS,
     "policy.local_grace_ms : policy.lease_ms + policy.lease_margin_ms;",
     "policy.local_grace_ms : policy.lease_ms;"),
    ("the stop-grace after the lease is not waited for", HOSTS,
     "  return leased ? experiment.spec().stop_grace_ms : 0;",
     "  return leased ? 0 : 0;"),
    ("seats are given back at the exit", MODEL,
     "  return !is_gone(replica) || awaits_relaunch(experiment, replica);",
     "  return (!is_gone(replica) && replica.progress != Progress::Exited) ||\n"
     "         awaits_relaunch(experiment, replica);"),
    ("who is launched again alone has given its seat away", MODEL,
     "  return !is_gone(replica) || awaits_relaunch(experiment, replica);",
     "  return !is_gone(replica);"),
    ("a GPU that is taken stays free", FREE,
     "if (found != free.gpus.end() && *found == gpu) free.gpus.erase(found);",
     "if (found != free.gpus.end() && *found == gpu && gpu != 1) free.gpus.erase(found);"),
    ("half of a gang is placed when the rest finds no room", PLACEMENT,
     "      if (done()) return shares;\n    }\n    return std::nullopt;",
     "      if (done()) return shares;\n    }\n    return shares;"),
    ("memory is promised beyond what a host has", PLACEMENT,
     "room.gpus >= need.gpus && room.memory_bytes >= need.memory_bytes &&",
     "room.gpus >= need.gpus &&"),
    ("what goes ahead takes what the first one waits for", QUEUE,
     "  if (reservation_ && !over_before) choice.kept_free = &reservation_->others_may_use;",
     "  if (reservation_ && over_before) choice.kept_free = &reservation_->others_may_use;"),
    ("what goes ahead is not taken off the reservation", QUEUE,
     "      if (kept != reservation_->others_may_use.end()) add(kept->second, seat, -1);",
     "      if (kept != reservation_->others_may_use.end()) add(kept->second, seat, 0);"),
    ("an outcome is changed by a later kill", TABLE,
     "  if (!experiment->outcome) fix_outcome(turn, *experiment, State::Killed, nullptr, \"killed\");",
     "  experiment->outcome.reset();\n"
     "  fix_outcome(turn, *experiment, State::Killed, nullptr, \"killed\");"),
    ("the success of any replica finishes the experiment", OUTCOME,
     "  if (!first.exit || is_failure(*first.exit)) return;\n", ""),
    ("who is launched again counts as ended", OUTCOME,
     "    return replica.id.role == Role::Worker && !replica.end;",
     "    return replica.id.role == Role::Worker && !replica.end && !is_gone(replica);"),
    ("the restart budget is not kept", OUTCOME,
     "experiment.restarts_used < static_cast<uint32_t>(budget.limit);",
     "experiment.restarts_used <= static_cast<uint32_t>(budget.limit);"),
    ("strays are not stopped", HOSTS,
     "    stops[fact.replica.experiment].replicas.push_back(fact);\n", ""),
    ("a host with strays is placed on", PLACEMENT,
     "  free.open = host.connected && host.strays.empty();",
     "  free.open = host.connected;"),
    ("a replica counted as released may be held there", HOSTS,
     "  return experiment.over || replica->progress == Progress::Released ||\n",
     "  return experiment.over ||\n"),
    ("failed starts exclude no host", OUTCOME,
     "    experiment.excluded_hosts.push_back(host);\n", ""),
    ("failed starts are never too many", OUTCOME,
     "  if (++experiment.start_failures >= turn.policy.start_failures_per_host) {",
     "  if (++experiment.start_failures > 1'000'000) {"),
    ("excluded hosts are placed on", PLACEMENT,
     "    return std::find(choice_.excluded.begin(), choice_.excluded.end(), host.id) ==\n"
     "           choice_.excluded.end();",
     "    return true;"),
    ("who has no host left gives up before hosts can come back", TABLE,
     "!waiting.replicas.empty() && all_hosts_are_back(turn)) {",
     "!waiting.replicas.empty()) {"),
    ("one member more than `concurrency` is let in", TURN,
     "    if (tally->second.in_slots >= static_cast<uint32_t>(next.spec().concurrency)) return;",
     "    if (tally->second.in_slots > static_cast<uint32_t>(next.spec().concurrency)) return;"),
    ("a kill while it waits ends nobody", TABLE,
     "    if (std::all_of(replicas.begin(), replicas.end(), is_gone)) finish_experiment",
     "    if (!replicas.empty() && std::all_of(replicas.begin(), replicas.end(), is_gone))\n"
     "      finish_experiment"),
    ("an exit is judged between two attempts", OUTCOME,
     "  if (experiment.outcome || experiment.phase == Phase::Ending) return;   // a consequence",
     "  if (experiment.outcome) return;"),
    ("what is unknown to its runner is taken for running", HOSTS,
     "      miss_held(turn, *experiment, replica, again);\n", ""),
    ("released is forgotten before it is released", HOSTS,
     "  if (holder.hex.empty()) return;\n", "  return;\n"),
]


def copy_tree(to: pathlib.Path) -> None:
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                           cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in names.splitlines():
        source, target = ROOT / name, to / name
        if not source.is_file():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != source.read_bytes():
            shutil.copy(source, target)


def build(tree: pathlib.Path, target: str) -> str:
    """Empty, or what the compiler said."""
    done = subprocess.run(["ninja", "-C", tree / "build", "-j1", target],
                          capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout[-3000:]


def run(tree: pathlib.Path, program: str) -> tuple[int, str, float]:
    started = time.monotonic()
    try:
        done = subprocess.run([tree / "build" / "bin" / program], timeout=300, text=True,
                              errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout, time.monotonic() - started
    except subprocess.TimeoutExpired:
        return 124, "FATAL ERROR: it goes on for ever", time.monotonic() - started


def first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found.group(1).strip() if found else ""


def said_by(program: str, output: str) -> str:
    """What caught it, in a line: the check that failed, or the test case."""
    if program == "core_tests":
        cases = dict.fromkeys(re.findall(r"TEST CASE:\s+(.*)", output))
        return "unit: " + "; ".join(cases)
    words = (first(r"(INVARIANT.*|.*broken invariant.*)", output)
             or first(r"ERROR: (.*)", output) or first(r"(.*terminate.*)", output) or "it crashed")
    seed, step = first(r"DTRAIN_SIM_SEED=(\d+)", output), first(r"\nat step (\d+)", output)
    where = ", ".join(p for p in (f"seed {seed}" * bool(seed), f"step {step}" * bool(step)) if p)
    return f"{words[:110]} ({where})" if where else words[:110]


def try_mutant(tree: pathlib.Path, file: str, old: str, new: str) -> str:
    """What caught it; empty when nothing did."""
    path = tree / file
    original = path.read_text()
    if original.count(old) != 1:
        raise SystemExit(f"{file} has this {original.count(old)} times, not once:\n{old}")
    path.write_text(original.replace(old, new))
    try:
        for program in ("sim_tests", "core_tests"):
            if failed := build(tree, program):
                raise SystemExit(f"a mutant of {file} does not compile:\n{new}\n{failed}")
            code, output, seconds = run(tree, program)
            if code != 0:
                return f"{said_by(program, output)}, {seconds:.1f} s"
    finally:
        path.write_text(original)
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=pathlib.Path, help="kept, for the next run to be faster")
    parser.add_argument("words", nargs="*", help="only mutants whose description has all of these")
    options = parser.parse_args()
    tree = options.work or pathlib.Path(tempfile.mkdtemp(prefix="mutants-"))
    try:
        copy_tree(tree)
        subprocess.run(["cmake", "-S", tree, "-B", tree / "build", "-G", "Ninja",
                        "-DCMAKE_BUILD_TYPE=Release", "-DDTRAIN_TEST_LEVELS=sim"],
                       check=True, stdout=subprocess.DEVNULL)
        for program in ("sim_tests", "core_tests"):
            if failed := build(tree, program):
                raise SystemExit(failed)
            code, output, seconds = run(tree, program)
            if code != 0:
                raise SystemExit(f"{program} fails unbroken:\n{output[:3000]}")
            print(f"unbroken, {program} passes in {seconds:.1f} s", flush=True)
        survived = 0
        for description, file, old, new in MUTANTS:
            if not all(word in description for word in options.words):
                continue
            caught = try_mutant(tree, file, old, new)
            survived += not caught
            print(f"| {description} | {caught or 'SURVIVED'} |", flush=True)
        return 1 if survived else 0
    finally:
        if options.work is None:
            shutil.rmtree(tree, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
