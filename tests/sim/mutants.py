#!/usr/bin/env python3
"""Breaks the guards of the scheduling core one at a time and sees that the simulation notices.

Each mutant is one file of the core, changed in a temporary folder, compiled and linked as the build
directory does it. The simulation is run with it, and where it sees nothing, the unit tests of the core.
Prints a table; returns 1 when a mutant survived. By hand: a compiler's run for each mutant.

    tests/sim/mutants.py [--build DIR] [-j N] [WORD...]   only mutants whose words have each WORD
    tests/sim/mutants.py --check                          none; a test: each has its place in its file
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAUNCH, HOSTS = "daemon/lifecycle_launch.cc", "daemon/lifecycle_hosts.cc"
OUTCOME, TURN = "daemon/lifecycle_outcome.cc", "daemon/lifecycle_turn.cc"
FITNESS = "daemon/placement_fitness.cc"
TABLE, QUEUE, MODEL = "daemon/lifecycle.cc", "daemon/queue.cc", "daemon/model.cc"
PLACEMENT, FREE = "daemon/placement.cc", "daemon/placement_free.cc"
SHARES = "daemon/placement_shares.cc"
ELASTIC, GROWTH = "daemon/placement_elastic.cc", "daemon/growth.cc"
AFTER, CLAIMS, PASS = "daemon/dependencies.cc", "daemon/claims.cc", "daemon/placing_pass.cc"
SEARCH, PREEMPT = "daemon/set_rules.cc", "daemon/preemption.cc"
RULES, QUOTA = "daemon/failure_rules.cc", "daemon/quota.cc"

# What it breaks; in which file; the exact text, which occurs once; what it becomes.
MUTANTS = [
    ("a replica's messages of any attempt count", TABLE,
     "if (found == experiment.replicas.end() || found->attempt != attempt) return nullptr;",
     "if (found == experiment.replicas.end() || attempt == 0) return nullptr;"),
    ("a launch's messages of any attempt count", LAUNCH,
     "if (launch_of(replica) != launch || replica.seat.host != host || replica.lost) continue;",
     "if (launch_of(replica).of_builds != launch.of_builds || replica.seat.host != host || replica.lost) continue;"),
    ("Start is sent once for each replica, not for each launch", HOSTS,
     "      started.insert(launch_of(replica)).second) {",
     "      (started.insert(launch_of(replica)).second || true)) {"),
    ("Start is not repeated to a runner that comes back", HOSTS,
     "  if (replica.progress == Progress::Prepared && start_committed(experiment, replica) &&",
     "  if (false && start_committed(experiment, replica) &&"),
    ("Go is said when one host is prepared", LAUNCH,
     "    return is_build(r) || r.progress == Progress::Prepared;\n",
     "    return is_build(r) || r.progress <= Progress::Prepared;\n"),
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
     "  return (lease_ms == 0 ? policy.lease_ms : lease_ms) + policy.lease_margin_ms;",
     "  return lease_ms == 0 ? policy.lease_ms : lease_ms;"),
    ("a host is lost before its max-away", HOSTS,
     "  return (lease_ms == 0 ? policy.lease_ms : lease_ms) + policy.lease_margin_ms;",
     "  return policy.lease_ms + policy.lease_margin_ms;"),
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
    ("half of a gang is placed when the rest finds no room", SHARES,
     "      if (done()) return shares;\n    }\n    return std::nullopt;",
     "      if (done()) return shares;\n    }\n    return shares;"),
    ("memory is promised beyond what a host has", SHARES,
     "(need.memory_bytes == 0 || room.memory_bytes >= need.memory_bytes) &&",
     "true &&"),
    ("what goes ahead takes what the first one waits for", CLAIMS,
     "  return count == 1 ? &only->others_may_use : &left_;",
     "  return count == 1 ? nullptr : &left_;"),
    ("what is over before the first one begins waits as well", CLAIMS,
     "{ return claim.starts_ms != 0 && over_ms != 0 && over_ms <= claim.starts_ms; }", "{ return claim.starts_ms == 1 && over_ms == 1; }"),
    ("of two that keep the same host free only the first does", CLAIMS,
     "      if (!fresh) place->second = least_of(place->second, room);\n", "      (void)fresh;\n"),
    ("who must build goes ahead by its max-duration", PASS,
     "spec.max_duration_ms > 0 && !spec.has_build() ?", "spec.max_duration_ms > 0 ?"),
    ("the reservation is where nobody knows of an end", CLAIMS,
     "  return certain.starts_ms != 0 ? certain : nearest;", "  return nearest;"),
    ("what never ends counts as room to come", CLAIMS,
     "    if (end_of(experiment) == 0) rest.take(seat);", "    if (false) rest.take(seat);"),
    ("what goes ahead is not taken off the reservation", CLAIMS,
     "      if (kept != claim.others_may_use.end()) kept->second -= room_of(seat);\n",
     "      (void)kept;\n"),
    ("an outcome is changed by a later kill", TABLE,
     "  if (!experiment->outcome) {\n    const bool by_another",
     "  experiment->outcome.reset();\n  {\n    const bool by_another"),
    ("a set that is killed as a whole is one of which members were killed", TABLE,
     "    experiment->outcome->with_set = event.id != id;\n", ""),
    ("the success of any replica finishes the experiment", OUTCOME,
     "  if (!first.exit || is_failure(*first.exit)) return;\n", ""),
    ("who is launched again counts as ended", OUTCOME,
     "    return replica.id.role == Role::Worker && !replica.end;",
     "    return replica.id.role == Role::Worker && !replica.end && !is_gone(replica);"),
    ("the restart budget is not kept", OUTCOME,
     "used < static_cast<uint32_t>(most);", "used <= static_cast<uint32_t>(most);"),
    ("the restart budget of a policy is not kept", OUTCOME,
     "experiment.restarts_used < static_cast<uint32_t>(experiment.spec().restarts_most())",
     "experiment.restarts_used <= static_cast<uint32_t>(experiment.spec().restarts_most())"),
    ("strays are not stopped", HOSTS,
     "    stops[fact.replica.experiment].replicas.push_back(fact);\n", ""),
    ("a host with strays is placed on", PLACEMENT,
     "  free.open = host.connected && host.strays.empty() &&",
     "  free.open = host.connected &&"),
    ("a replica counted as released may be held there", HOSTS,
     "  return experiment.over || replica->progress == Progress::Released ||\n",
     "  return experiment.over ||\n"),
    ("failed starts exclude no host", OUTCOME,
     "    experiment.excluded_hosts.push_back(host);\n", ""),
    ("failed starts are never too many", OUTCOME,
     "  if (experiment.start_failures % turn.policy.start_failures_per_host == 0) {",
     "  if (experiment.start_failures % 1'000'000 == 0) {"),
    ("failed starts count for ever", LAUNCH,
     "  experiment->start_failures = 0;\n",
     ""),
    ("failed starts are repeated as fast as can be", OUTCOME,
     "std::min(rounds, kDoublingsMax)", "std::min(rounds, 0u)"),
    ("excluded hosts are placed on", PLACEMENT,
     "    return std::find(choice.excluded.begin(), choice.excluded.end(), id) != choice.excluded.end();",
     "    return id.hex.empty();"),
    ("who has only excluded hosts left waits for ever", QUEUE,
     "  if (best.stretch > 0 || high == 0) return best;\n", "  return best;\n"),
    ("who has only excluded hosts left may use all of them", QUEUE,
     "  while (low < high) {", "  while (false) {"),
    ("the host that failed last is tried again first", QUEUE,
     "excluded.begin() + static_cast<long>(readmitted),\n                         excluded.end());",
     "excluded.begin(), excluded.end() - static_cast<long>(readmitted));"),
    ("nobody looks for another host when one goes", HOSTS,
     "  turn.model.place_wanted = true;   // without it, excluded hosts may count again\n", ""),
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
    ("what was given up and is gone is waited for", HOSTS,
     "  let_go(turn, event.host, fact);\n",
     ""),
    ("a stray that was never prepared keeps its host", HOSTS, "    host->strays.erase(fact);\n", ""),
    ("a gang is launched before its builds are done", LAUNCH,
     "return !is_build(r) || r.end == State::Finished;",
     "return !is_build(r) || r.end != State::Failed;"),
    ("a gang that is built for has no seats", MODEL,
     "// it uses what the gang will\n"
     "  if (replica.progress == Progress::None) return experiment.phase == Phase::Building;",
     "// it uses what the gang will\n"
     "  if (replica.progress == Progress::None) return false;"),
    ("a gang whose build failed keeps its seats", TABLE,
     "      replica.progress = Progress::Released;   // it only had a seat\n", ""),
    ("a Hello launches what waits for its build", HOSTS,
     "if (replica.progress == Progress::None || awaits_relaunch(*experiment, replica)) continue;",
     "if (awaits_relaunch(*experiment, replica)) continue;"),
    ("a build that finds all made is waited for", LAUNCH,
     "  if (build && event.cached) return settle(turn, *experiment, false);\n",
     "  if (build && event.cached) return;\n"),
    ("a build that is lost fails its experiment", OUTCOME,
     "!may_restart(experiment.spec()) && !is_build(replica)) {",
     "!may_restart(experiment.spec())) {"),
    ("per-host limits nothing where a gang is spread", SHARES,
     "std::min({need.left, left.ports, limit_left(share, i)});", "std::min({need.left, left.ports});"),
    ("per-host lets one host take all", SHARES,
     "      return each.role->per_host == 0 || left <= each.role->per_host;\n", "      return left >= 0;\n"),
    ("per-host counts the master apart from the workers", SHARES,
     "      if (counted_as(spec_.roles[i].role) == counted_as(each.role)) taken += share.count[i];",
     "      if (i == role) taken += share.count[i];"),
    ("per-host limits nothing where a gang is spread evenly", SHARES,
     "if (!fits(so_far.left[at], need) || limit_left(so_far.shares[at], role) <= 0) continue;",
     "if (!fits(so_far.left[at], need)) continue;"),
    ("per-host is forgotten of an elastic gang that is smaller", ELASTIC,
     "role.on_failure, role.per_host});", "role.on_failure});"),
    ("per-host is no part of a lane", QUEUE,
     "    if (role.per_host > 0) lane +=", "    if (role.per_host < 0) lane +="),
    ("a host that is unfit is placed on again", QUEUE,
     "  Choice choice{experiment.submission->host, unfit_hosts(experiment), nullptr, lane_of(model, experiment)};",
     "  Choice choice{experiment.submission->host, {}, nullptr, lane_of(model, experiment)};"),
    ("a host that is unfit is a failed start", OUTCOME,
     "    start_again_at_once(turn, experiment,\n"
     "                        lacks_text(turn.model, experiment) + \"; other hosts are tried\");",
     "    start_failed(turn, experiment, replica.seat.host, \"unfit\");"),
    ("what is unfit is not known when the attempt ends already", LAUNCH,
     "  if (event.unfit && !experiment->outcome) {",
     "  if (event.unfit && !experiment->outcome && experiment->phase != Phase::Ending) {"),
    ("what a host lacked is held against it for ever", HOSTS,
     "  for (size_t i = 0; i < news.size(); ++i) forget_unfitness(turn, news[i], unfit[i]);\n", ""),
    ("what a host lacked is remembered in the database", HOSTS,
     "    turn.touched.at(id).save = true;   // reconcile() may have found nothing else new\n", ""),
    ("who has no host left waits for ever", TABLE,
     "  if (has_no_host_left(turn.model, experiment, turn.now)) return give_up(turn, id);\n", ""),
    ("who waits for hosts after a restart is forgotten", TABLE,
     "      turn.model.place_wanted = true;   // whom no host is left for is found by the pass\n", ""),
    ("who could still go to a host that is away is given up", FITNESS,
     "emptied(model.free, Which::Known), choice) == 0;", "emptied(model.free, Which::Connected), choice) == 0;"),
    ("after a restart nobody waits for hosts that may come back", FITNESS,
     "if (!experiment.unfit_hosts || now < model.hosts_awaited_until_ms) return false;",
     "if (!experiment.unfit_hosts) return false;"),
    ("a host that is known from its seats only is no hope", FITNESS,
     "    if (host.cpus == 0 && !is_unfit(experiment, id) && free != nullptr && free->seats > 0) return false;\n", ""),
    ("nobody looks when an attempt gives back a seat that was kept for a relaunch", OUTCOME,
     "  turn.model.place_wanted = true;   // who was about to be launched again alone gives its seat back\n",
     ""),
    ("a rank of a collective program is launched again alone", OUTCOME,
     "    case Framework::Mpi: return true;\n", "    case Framework::Mpi: return false;\n"),
    ("a worker of the engine that is in step is launched again alone", OUTCOME,
     "return spec.engine.in_step && role != Role::Ps;", "return false;"),
    ("a server of the engine takes the gang with it", OUTCOME,
     "return spec.engine.in_step && role != Role::Ps;", "return spec.engine.in_step;"),
    ("a refusal of the engine is tried again", OUTCOME,
     "const OnFailure rule = refusal ? OnFailure::Fail : said.rule",
     "const OnFailure rule = said.rule"),
    ("any program's exit is a refusal of the engine", OUTCOME,
     "  return spec.framework == Framework::Engine && replica.exit && replica.exit->signal == 0 &&\n"
     "         replica.exit->code == kEngineRefusedCode && replica.id.role != Role::Tensorboard;",
     "  return spec.framework == Framework::Engine && replica.exit && replica.exit->code > 0 &&\n"
     "         kEngineRefusedCode > 0 && replica.id.role != Role::Tensorboard;"),
    ("a TensorBoard holds its experiment up", OUTCOME,
     "bool serves(Role role) { return role == Role::Ps || role == Role::Tensorboard; }",
     "bool serves(Role role) { return role == Role::Ps; }"),
    ("a gang's restart costs those of its members too", OUTCOME,
     "  if (whole_gang) spared += others;\n", "  if (false) spared += others;\n"),
    ("who has failed and is then lost costs two restarts", OUTCOME,
     "  uint32_t spared = again ? 1 : 0;", "  uint32_t spared = again ? 0 : 0;"),
    ("the failure of who decides is ignored", OUTCOME,
     "  if (rule == OnFailure::Ignore && !decides) {", "  if (rule == OnFailure::Ignore) {"),
    ("who is lost with its host is launched again there alone", OUTCOME,
     "is_collective(experiment.spec(), replica.id.role) || !seat_remains;",
     "is_collective(experiment.spec(), replica.id.role);"),
    ("what may not be restarted is given up while its host is away", HOSTS,
     "  return replica.lease_ms == 0 && !model.revoked.contains(replica.seat.host);",
     "  return replica.lease_ms < 0 && !model.revoked.contains(replica.seat.host);"),
    ("what may not be restarted waits for a host that can't come back, too", HOSTS,
     "  return replica.lease_ms == 0 && !model.revoked.contains(replica.seat.host);",
     "  return replica.lease_ms == 0 || model.revoked.contains(replica.seat.host);"),
    ("what waited for a host that is away waits on once its experiment has its outcome", OUTCOME,
     "  if (std::ranges::any_of(experiment.replicas, is_away)) look_for_lost(turn);\n",
     "  (void)std::ranges::any_of(experiment.replicas, is_away);\n"),
    ("each start that fails is shown", TURN,
     "  const bool was_hidden = !is_shown_try(before.failed_before) && has_not_begun(before.state);",
     "  const bool was_hidden = false;"),
    ("a try that was not shown and succeeds is shown from its end only", TURN,
     "  if (was_hidden && !hidden) show_hidden(experiment, before, effects);\n",
     "  if (was_hidden && hidden) show_hidden(experiment, before, effects);\n"),
    ("an experiment waits for ever for who may still run somewhere", OUTCOME,
     "  if (may_still_run && !may_restart(experiment.spec()) && !is_build(replica)) {",
     "  if (false && may_still_run) {"),
    ("the backoff of a restart is not kept", OUTCOME,
     "  experiment.not_before_ms = backoff_ms > 0 ? turn.now + backoff_ms : 0;",
     "  experiment.not_before_ms = backoff_ms > 0 ? 0 : 0;"),
    ("workers get no finish-grace", OUTCOME,
     "  if (!serves(replica.id.role)) return false;\n", "  if (!serves(replica.id.role)) return true;\n"),
    ("the finish-grace has no end", OUTCOME,
     "  if (now >= experiment.outcome->at_ms + experiment.spec().finish_grace_ms) return true;\n",
     "  if (now < 0) return true;\n"),
    ("servers end while workers have their finish-grace", OUTCOME,
     "    return r.id.role == Role::Worker && is_alive(r);",
     "    return r.id.role == Role::Worker && is_alive(r) && r.attempt == 0;"),
    ("the end of a replica is changed by that of its experiment", OUTCOME,
     "  if (replica.end) return;\n", ""),
    ("the TensorBoard of a set never ends", TURN,
     "  if (turn.model.experiments.at({number, 0}).outcome) return;\n", "  return;\n"),
    ("a new daemon lets in every member of a set", TURN,
     "    experiment.held = waits && !had_its_turn && id.member > 0 &&",
     "    experiment.held = false && !had_its_turn && id.member > 0 &&"),
    ("a new daemon never gives up a host that stays away", TURN,
     "    model.deadlines.insert({model.hosts_awaited_until_ms, ExperimentId{}});\n", ""),
    ("nobody wakes up for who is to be launched again alone", TURN,
     "(experiment.phase == Phase::None || relaunch)", "experiment.phase == Phase::None"),
    ("nobody wakes up at the end of max-duration", TURN,
     "    by(std::max<TimeMs>(experiment.run_since_ms + max_ms, 1));\n", ""),
    ("nobody wakes up at the end of finish-grace", TURN,
     "    if (graced) by(", "    if (graced && experiment.over) by("),
    ("a Launch is no contact", TURN, "    to->last_contact_ms = now;\n", ""),
    ("max-duration is not kept", TABLE,
     "        turn.now >= experiment->run_since_ms + max_ms) {", "        turn.now < 0) {"),
    ("max-duration begins anew with each attempt", LAUNCH,
     "  if (experiment.run_since_ms == 0) {", "  if (experiment.run_since_ms >= 0) {"),
    ("who was given up has an exit after all", TABLE,
     "[](const Replica& r) { return r.progress < Progress::Exited && !r.lost; }",
     "[](const Replica& r) { return r.progress < Progress::Exited; }"),
    ("a keeper that dies before everyone runs costs a restart", TABLE,
     "!was_started || (event.exit.lost_keeper && !everyone_started);", "!was_started;"),
    ("who is released without an exit is taken for running", TABLE,
     "  if (unexplained && !replica->end) {", "  if (unexplained && replica->end) {"),
    ("nobody looks when seats are released", TABLE,
     "    judge_loss(turn, *experiment, *replica, \"released without an exit status\");\n  }\n"
     "  turn.model.place_wanted = true;\n",
     "    judge_loss(turn, *experiment, *replica, \"released without an exit status\");\n  }\n"),
    ("nobody looks when an attempt is gone", TABLE,
     "      if (backoff_over(turn, experiment)) turn.model.place_wanted = true;\n",
     "      (void)backoff_over(turn, experiment);\n"),
    ("nobody looks when an outcome is fixed", OUTCOME,
     "  experiment.awaits = false;\n  experiment.not_before_ms = 0;\n  turn.model.place_wanted = true;\n",
     "  experiment.awaits = false;\n  experiment.not_before_ms = 0;\n"),
    ("a kill by force waits for the grace", TABLE,
     "  if (event.force) experiment->stop_forced = true;\n", ""),
    ("who was told to stop is not told of the force", TABLE,
     "    if (replica.stop_sent && !force) continue;\n", "    if (replica.stop_sent) continue;\n"),
    ("who comes back is not told again to stop", HOSTS,
     "  replica.lost = false;\n  replica.stop_sent = false;\n", "  replica.lost = false;\n"),
    ("nobody looks when an absent host is due", HOSTS,
     "  turn.model.place_wanted = true;   // without it, excluded hosts may count again\n  look_for_lost(turn);\n",
     "  turn.model.place_wanted = true;\n"),
    ("words of a host are no contact", HOSTS,
     "  if (host == nullptr) return;\n  if (host->connected) host->last_contact_ms = turn.now;\n",
     "  if (host == nullptr) return;\n"),
    ("a changed inventory forgets the strays", HOSTS,
     "  next.strays = std::move(host.strays);\n", ""),
    ("a port that is taken is given out again", LAUNCH,
     "    host->quarantined_ports.insert_or_assign(event.port_taken, turn.now);\n", ""),
    ("a GPU that a stranger uses is given out", FREE,
     "    if (gone || gpu.busy.empty()) empty.gpus.push_back(gpu.index);",
     "    empty.gpus.push_back(gpu.index);"),
    ("a GPU that a stranger came to use meanwhile is given out again", FREE,
     "if (!ours || !gpu.busy.empty()) continue;", "if (!ours) continue;"),
    ("a port in use is given out", FREE, "  free.ports_used.insert(seat.port);\n", ""),
    ("priority counts for nothing", QUEUE,
     "  return {experiment.regrows ? kFirst : 100 - experiment.spec().priority, experiment.id};",
     "  return {experiment.regrows ? kFirst : 0, experiment.id};"),
    ("hosts that come change no prospect", QUEUE,
     "  if (queue.prospects_version != model.free.version()) {", "  if (queue.prospects_version == 0) {"),
    ("what waits is passed over for ever", PASS,
     "      claims_.add(std::move(*claim));\n", ""),
    ("an elastic gang that is begun again for more workers keeps nothing meanwhile", PASS,
     "    claims_.add({order, kept_for_growth(model_, experiment, now_)});\n", ""),
    ("an elastic gang that is begun again for more workers keeps no quota meanwhile", QUOTA,
     "  for (const QueueOrder& order : model.regrowing) keep_all(model.experiments.at(order.id));\n", ""),
    ("who has got its place keeps its quota besides", QUOTA,
     "  room -= held_by(experiment);\n  return most_of", "  return most_of"),
    ("who comes back finds its quota used up", QUOTA,
     "  for (const QueueOrder& order : model.returning) keep(model.experiments.at(order.id));\n", ""),
    ("an elastic gang grows into the quota of one ahead of it", GROWTH, " || has_other_ahead(model, experiment, ahead)) return", ") return"),
    ("who can run nowhere keeps its user's quota", PASS, "if (prospect_of(model_, experiment, lane).stretch > 0) quotas_", "quotas_"),
    ("an elastic gang that is begun again for more workers has its usual turn", QUEUE,
     "  return {experiment.regrows ? kFirst : 100 - experiment.spec().priority, experiment.id};",
     "  return {experiment.regrows ? 100 - experiment.spec().priority : 100 - experiment.spec().priority + 0 * kFirst, experiment.id};"),
    ("an elastic gang takes more workers from what others keep free", GROWTH,
     "  if (kept) choice.kept_free = &kept->others_may_use;\n  auto seats", "  auto seats"),
    ("an elastic gang takes more workers before one that waits", TABLE,
     "  if (!pass.is_settling() && pass", "  if (pass"),
    ("an elastic gang begins with the first that is free", PASS,
     "  choice.whole = !experiment.regrows && now_ < model_.elastic_from_ms;", "  choice.whole = false;"),
    ("a lost host costs an elastic gang a restart", OUTCOME,
     "  if (experiment.spec().elastic && replica.lost && !replica.exit &&", "  if (false && replica.lost && !replica.exit &&"),
    ("an elastic gang begins with less than its least", ELASTIC,
     "  int least = spec.elastic->least_of_role, most", "  int least = 0, most"),
    ("an elastic gang is begun again though one is done", GROWTH,
     "    return !is_build(replica) && replica.end == State::Finished;", "    return !is_build(replica) && replica.end == State::Created;"),
    ("an elastic gang is begun again though its time is almost over", GROWTH,
     "  if (ends_soon(experiment, now) || ", "  if ("),
    ("an elastic gang is begun again before its time", GROWTH,
     "return experiment.grows_from_ms == 0 && may_grow(experiment); }", "return may_grow(experiment); }"),
    ("an elastic gang is asked whether it could have more workers by its own seats alone", GROWTH,
     "  supposed.give_all(experiment);\n  std::optional<Claim> kept;", "  std::optional<Claim> kept;"),
    ("what comes after another is placed before", MODEL,
     "!experiment.held && !experiment.awaits && !experiment.suspended;", "!experiment.held && !experiment.suspended;"),
    ("what comes after one that failed begins", AFTER,
     "  if (end == State::Finished || !names(submission.spec.after, awaited)) {\n",
     "  if (true || !names(submission.spec.after, awaited)) {\n"),
    ("any end but FINISHED fails what waits for an end", AFTER,
     "  if (end == State::Finished || !names(submission.spec.after, awaited)) {\n", "  if (end == State::Finished) {\n"),
    ("the first end lets begin what comes after several", AFTER,
     "if (waiting.empty() || !awaited_by(turn.model, turn.model.experiments.at(waiting.front()).submission->spec).empty()) continue;",
     "if (waiting.empty()) continue;"),
    ("who waited is not forgotten when it ends", AFTER,
     "    if (!lives(model, ended.set())) wait_no_more(model, *experiment.submission);\n", ""),
    ("the next daemon has nobody wait for others", TURN,
     "    experiment.awaits = awaits && !experiment.over;\n", "    (void)awaits;\n"),
    ("the next daemon tells nobody of the ends of others", TURN,
     "    if (experiment.awaits) begin_to_wait(model, *seen);\n", ""),
    ("members that wait for others use up their set's slots", MODEL,
     "(!member.held && !member.awaits && !member.suspended);", "(!member.held && !member.suspended);"),
    ("what a failure ends in turn is left as it is", TURN,
     "  } while (fail_with_ended(*this));\n", "  } while (fail_with_ended(*this) && false);\n"),
    ("a member that is worse than others goes on", SEARCH,
     "  if (better < go_on && !std::isnan(value)) return \"\";\n", "  if (better <= go_on && !std::isnan(value)) return \"\";\n"),
    ("a member whose metric is no number goes on", SEARCH,
     "  if (better < go_on && !std::isnan(value)) return \"\";\n", "  if (better < go_on) return \"\";\n"),
    ("a member ends early where there are too few to tell", SEARCH,
     "  if (came < factor) return \"\";   // too few to tell\n", ""),
    ("the least is the best, whatever the goal", SEARCH,
     "  return search.highest_is_best ? -value : value;", "  return value;"),
    ("a member is looked at again where it was before", SEARCH,
     " || event.rung != rungs) return;", " || event.rung > rungs) return;"),
    ("who ends early has a grace to finish in", OUTCOME,
     "  if (experiment.outcome->state != State::Finished || experiment.outcome->early) return true;",
     "  if (experiment.outcome->state != State::Finished) return true;"),
    ("what a member had is not counted", TURN,
     "  count_costs(tally, experiment, in);\n", "  (void)count_costs;\n"),
    ("a set goes on though more members failed than may", SEARCH,
     "failed > static_cast<uint32_t>(most)) failing.insert(id.number);", "failed > static_cast<uint32_t>(most) + 1) failing.insert(id.number);"),
    ("members that wait go on though too many others failed", SEARCH,
     "      if (known.outcome || known.is_shared()) continue;\n", "      if (known.outcome || known.is_shared() || known.attempt == 0) continue;\n"),
    ("one gives way to what has the same priority", PREEMPT,
     "next_->behind > order_.behind; ++next_", "next_->behind >= order_.behind; ++next_"),
    ("what is not preemptible gives way", PREEMPT,
     "  if (!experiment.spec().preemptible || experiment.over", "  if (experiment.over"),
    ("one gives way whose host is away", PREEMPT,
     "if (!leaving_.contains(next_->id) && can_be_stopped(model_, experiment))", "if (!leaving_.contains(next_->id))"),
    ("some give way though what ends anyway makes room", PREEMPT,
     "    if (auto seats = question.seats({})) return promise(asking, std::move(*seats));\n", ""),
    ("more give way than it takes", PREEMPT,
     "    if (question.seats(others)) {\n      who", "    if (question.seats(others) && others.empty()) {\n      who"),
    ("of those that give way the one of the highest priority is first", PREEMPT,
     "next_(model.preemptible.rbegin()) {}", "next_(model.preemptible.rbegin()) {\n    first(SIZE_MAX);\n    std::reverse(found_.begin(), found_.end());\n  }"),
    ("nothing is kept for one to whom others give way", PASS,
     "  claims_.add(std::move(*claim));\n  quotas_.keep(experiment);\n  return true;", "  return true;"),
    ("what is promised to one is promised to another", PREEMPT,
     "      room->second -= room_of(seat);\n    }\n    return rooms;", "    }\n    return rooms;"),
    ("what one leaves over that gives way is nobody's", PREEMPT,
     "  std::for_each(leaving.begin(), leaving.end(), look_at);\n", ""),
    ("who comes back before one counts as gone for it", PREEMPT,
     "const bool comes_back_before = !experiment.outcome", "const bool comes_back_before = false && !experiment.outcome"),
    ("a set's TensorBoard has others give way", PREEMPT,
     "!experiment.regrows && !experiment.is_shared();", "!experiment.regrows;"),
    ("what has done its part does it again for another", PREEMPT,
     "return !is_build(replica) && replica.end == State::Finished; });\n}\n\nbool is_giving_way", "return replica.id.role == Role::Build && replica.end == State::Failed; });\n}\n\nbool is_giving_way"),
    ("others give way again and again to one whose start fails", LAUNCH,
     "experiment.preempts_from_ms = turn.now + begun_gives_way_ms(experiment);", "experiment.preempts_from_ms = 0;"),
    ("others give way without a pause to one that gets no place", TABLE,
     "  favoured.preempts_from_ms = turn.now + kGiveWayAgainMs;\n", ""),
    ("the first that would give way are spared first", PREEMPT,
     "others.begin() + static_cast<std::ptrdiff_t>(end - some), others.begin() + static_cast<std::ptrdiff_t>(end));",
     "others.begin(), others.begin() + static_cast<std::ptrdiff_t>(some));"),
    ("who has its place again still gives way", LAUNCH,
     "  experiment.gave_way_to.reset();\n", ""),
    ("max-duration goes on while one that gave way waits", TABLE,
     "    experiment->run_since_ms = 0;\n    start_again_at_once(turn, *experiment, gave_way_text", "    start_again_at_once(turn, *experiment, gave_way_text"),
    ("nobody is asked again when it is time", PREEMPT,
     "  model_.deadlines.insert({again_ms, ExperimentId{}});\n", ""),
    ("two give their place to several at once", PREEMPT,
     "  leaving_.insert(way->who.begin(), way->who.end());\n", ""),
    ("a policy does not wait for what the others have printed", OUTCOME,
     "if (has_policy && (whole_gang || !restarts)) {", "if (has_policy && !restarts) {"),
    ("a policy asks only the one that failed what it printed", RULES,
     "const std::string* const line = line_of(replica, i);\n      if (line",
     "const std::string* const line = &replica == cause ? line_of(replica, i) : nullptr;\n      if (line"),
    ("a policy's rule about codes fits any", RULES, "if (!has_code) continue;", "(void)has_code;"),
    ("a failure that a policy judges costs no restart", OUTCOME,
     "++experiment.restarts_used;\n    std::string text", "std::string text"),
    ("a policy tries the hosts that are to blame again", OUTCOME,
     "std::erase(experiment.excluded_hosts, id);\n    experiment.excluded_hosts.push_back(id);",
     "std::erase(experiment.excluded_hosts, id);"),
    ("a policy takes a gang of which one is being launched again for silent", RULES,
     "if (one_begins) experiment.heard_ms = turn.now;", "(void)one_begins;"),
    ("a policy takes for silent whose host has said nothing since", RULES,
     "turn.model.hosts.at(one.seat.host).last_contact_ms >= due_ms;", "one.lease_ms >= 0;"),
    ("a policy judges what another may yet have something to say of", OUTCOME,
     "if (std::ranges::none_of(experiment.replicas, may_say_more)) return", "if (true) return"),
    ("a policy takes who prints for silent", RULES,
     "if (found != turn.model.experiments.end()) found->second.heard_ms = turn.now;", "(void)found;"),
    ("a policy looks for no silence after a restart of the daemon", HOSTS, "hear(*experiment, turn.now);", ""),
    ("who was ended for a line by a policy has succeeded by its code", MODEL, " || exit.ended_for_line;", ";"),
    ("a policy's failure is forgotten for a host that is lost", OUTCOME,
     "if (experiment.failure) return judge_ended_attempt(turn, experiment);", ""),
    ("a policy has a silent gang pay for restarts that come with it", OUTCOME,
     "experiment.restarts_used -= std::min(restarts_under_way(experiment, nullptr), experiment.restarts_used);", ""),
    ("where a policy fails one the restarts of others are paid for", OUTCOME,
     "used - (whole_gang ? 0 : std::min(others, used));", "used;"),
    ("a policy is about what dtrain itself ends", OUTCOME, "return !replica.leaves && !lost_of_elastic;", "return !lost_of_elastic;"),
    ("a policy is about hosts that an elastic gang has lost", OUTCOME, "return !replica.leaves && !lost_of_elastic;", "return !replica.leaves;"),
    ("what a policy is about to judge is ended for its values", SEARCH, " || experiment.failure) return;", ") return;"),
    ("a policy's restarts need no lease", OUTCOME,
     "[](const FailureRule& rule) { return restarts(rule.action); })) return true;",
     "[](const FailureRule& rule) { return restarts(rule.action); })) return spec.restart.limit > 0;"),
    ("a policy launches one alone whose host is to blame", OUTCOME,
     "said.rule && said.rule->action == FailureAction::ExcludeHost;", "false;"),
    ("a policy judges silence as any failure", RULES,
     "if (rule.printed.empty() && cause == nullptr) continue;", ""),
    ("a policy judges an attempt of which something may be left", TABLE,
     "if (!std::all_of(replicas.begin(), replicas.end(), can_have_no_live_copy)) break;",
     "if (!experiment.failure && !std::all_of(replicas.begin(), replicas.end(), can_have_no_live_copy)) break;"),
    ("a policy is about TensorBoards, too", OUTCOME, "is_build(replica) || replica.id.role == Role::Tensorboard) return false;", "is_build(replica)) return false;"),
    ("a policy's silence is counted from the beginning only", TURN,
     "if (const TimeMs due_ms = silence_due_of(experiment); due_ms > 0) by(due_ms);", ""),
    ("a quota counts what is preemptible", QUOTA,
     "return spec.preemptible || is_only_tensorboard(spec);", "return is_only_tensorboard(spec);"),
    ("a quota is no limit for the size of an elastic gang", PLACEMENT,
     "if (choice.quota_left && !is_within(spec, *choice.quota_left)) return std::nullopt;", ""),
    ("who waits for a quota is passed by smaller ones of the same user", QUOTA,
     "first_.insert(experiment.submission->user).second) keep(experiment);", "first_.insert(experiment.submission->user).second) (void)first_.size();"),
    ("of those that wait for a quota each keeps what it waits for", QUOTA,
     "first_.insert(experiment.submission->user).second) keep(experiment);", "experiment.id.number > 0) keep(experiment);"),
    ("who waits for more than its whole quota keeps it", QUOTA, "if (!is_over_for_ever(model_, experiment) && first_", "if (first_"),
    ("a quota does not get back what is given back", QUOTA,
     "model.free.give(seat);\n  count(model, experiment, seat, -1);", "model.free.give(seat);\n  (void)experiment;"),
    ("quotas are as if unused after a restart of the daemon", TURN, "  count_users(model);\n", ""),
    ("whom hosts are kept free for may find its quota used up", PASS,
     "reserved_ = true;\n      quotas_.keep(experiment);", "reserved_ = true;"),
    ("who waits for a quota keeps hosts free", PASS,
     "if (quotas_.is_over(experiment)) {", "if (quotas_.is_over(experiment) && reserved_) {"),
    ("who needs none of what a quota has used up waits for it", QUOTA,
     "return some <= 0 || some <= most;", "return some <= most;"),
]


class Builder:
    """Compiles one changed file as the build directory does, and links it before the core's library."""

    def __init__(self, directory: pathlib.Path):
        self.directory = directory
        commands = json.loads((directory / "compile_commands.json").read_text())
        self.compile = {c["file"]: shlex.split(c["command"]) for c in commands}

    def ninja(self, *arguments: str) -> str:
        done = subprocess.run(["ninja", "-C", self.directory, *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stdout[-3000:])
        return done.stdout

    def call(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{shlex.join(command)}\n{done.stderr[-3000:]}")

    def unit_of(self, file: str, source: pathlib.Path) -> tuple[str, pathlib.Path]:
        """What the build directory compiles of the file, and the same with `source` in its place: itself, or one that includes many."""
        path = str(ROOT / file)
        if path in self.compile:
            return path, source
        for unit in self.compile:
            if "/dtrain_daemon_core.dir/Unity/" in unit and f'"{path}"' in (text := pathlib.Path(unit).read_text()):
                changed = source.with_name("unity.cxx")
                changed.write_text(text.replace(f'"{path}"', f'"{source}"'))
                return unit, changed
        raise SystemExit(f"{self.directory} does not compile {file}")

    def object_of(self, file: str, source: pathlib.Path) -> pathlib.Path:
        unit, source = self.unit_of(file, source)
        command = list(self.compile[unit])
        made = source.with_suffix(".o")
        command[command.index("-o") + 1] = str(made)
        command[command.index("-c") + 1] = str(source)
        self.call([*command, "-O1", "-g0", "-Wno-error"])
        return made

    def link(self, program: str, changed: pathlib.Path) -> pathlib.Path:
        line = self.ninja("-t", "commands", program).splitlines()[-1]
        command = shlex.split(line.removeprefix(": && ").removesuffix(" && :"))
        made = changed.with_name(program)
        command[command.index("-o") + 1] = str(made)
        library = next(i for i, word in enumerate(command) if word.endswith("libdtrain_daemon_core.a"))
        command.insert(library, str(changed))
        self.call(command)
        return made


def run(program: pathlib.Path) -> tuple[int, str, float]:
    started = time.monotonic()
    try:
        done = subprocess.run([program], timeout=300, text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
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


def try_mutant(builder: Builder, file: str, old: str, new: str) -> str:
    """What caught it; empty when nothing did."""
    original = (ROOT / file).read_text()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        source = pathlib.Path(folder) / pathlib.Path(file).name
        source.write_text(original.replace(old, new))
        changed = builder.object_of(file, source)
        for program in ("sim_tests", "core_tests"):
            code, output, seconds = run(builder.link(program, changed))
            if code != 0:
                return f"{said_by(program, output)}, {seconds:.1f} s"
    return ""


def misfits() -> list[str]:
    """Of those whose file has changed and that would break nothing, or not know what."""
    counts = [(file, old, (ROOT / file).read_text().count(old)) for _, file, old, _ in MUTANTS]
    return [f"{file} has this {count} times, not once:\n{old}" for file, old, count in counts if count != 1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("-j", type=int, default=2, help="mutants at a time")
    parser.add_argument("words", nargs="*", help="only mutants whose description has all of these")
    parser.add_argument("--check", action="store_true", help="only see that each has its place in its file")
    options = parser.parse_args()
    if wrong := misfits():
        raise SystemExit("\n".join(wrong))
    if options.check:
        print(f"{len(MUTANTS)} mutants have their places")
        return 0
    builder = Builder(options.build.resolve())
    builder.ninja("-j", str(options.j), "sim_tests", "core_tests")
    for program in ("sim_tests", "core_tests"):
        code, output, seconds = run(builder.directory / "bin" / program)
        if code != 0:
            raise SystemExit(f"{program} fails unbroken:\n{output[:3000]}")
        print(f"unbroken, {program} passes in {seconds:.1f} s", flush=True)
    chosen = [m for m in MUTANTS if all(word in m[0] for word in options.words)]
    survived = 0
    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        results = pool.map(lambda mutant: try_mutant(builder, *mutant[1:]), chosen)
        for (description, *_), caught in zip(chosen, results):
            survived += not caught
            print(f"| {description} | {caught or 'SURVIVED'} |", flush=True)
    print(f"{len(chosen)} mutants, {survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
