// Any bytes as the record of a launch: what to run and what became of it, or an error that says
// what is wrong. What was read is written and read back the same.
#include <algorithm>
#include <cmath>

#include "runner/launch_dir.h"
#include "runner/launch_facts.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/steps.h"

using namespace dtrain;
using namespace dtrain::fuzz;
using namespace dtrain::runner;

namespace {

template <typename T>
void check_refusal(const Result<T>& read) {
  if (read.ok()) return;
  INVARIANT(read.error().code == Code::DataLoss, "a record that makes no sense is damaged");
  INVARIANT(!read.error().message.empty(), "a refusal says why");
}

void check_launch(const LaunchRecord& launch, const LaunchDir& copy) {
  put(copy.record(), "");
  INVARIANT(copy.write_launch(launch).ok(), "what was read can be written");
  const auto again = copy.read_launch();
  INVARIANT(again.ok() && *again && **again == launch, "a launch reads back");
}

// NaN does not equal itself.
bool comparable(const LaunchFacts& facts) {
  return std::none_of(facts.exits.begin(), facts.exits.end(),
                      [](const auto& exit) { return std::isnan(exit.second.cpu_seconds); });
}

void check_facts(const LaunchFacts& facts, const LaunchDir& copy) {
  put(copy.record(), "");
  auto writer = FactsWriter::open(copy);
  INVARIANT(writer.ok(), "a record takes facts");
  if (facts.keeper) INVARIANT(writer->add(*facts.keeper).ok(), "the keeper can be written");
  for (const auto& [id, start] : facts.starts) {
    INVARIANT(writer->add(id, start).ok(), "a start can be written");
  }
  for (const auto& [id, exit] : facts.exits) {
    INVARIANT(writer->add(id, exit).ok(), "an end can be written");
  }
  const auto again = read_facts(copy);
  INVARIANT(again.ok() && *again == facts, "facts read back");
}

// The same facts for who looks while they are written.
void check_growing(std::string_view file, const LaunchFacts& facts, const LaunchDir& directory) {
  FactsReader reader(directory);
  put(directory.record(), file.substr(0, file.size() / 2));
  auto seen = reader.next();
  put(directory.record(), file);
  auto rest = reader.next();
  INVARIANT(seen.ok() && rest.ok(), "half of what is good is good");
  if (rest->keeper) seen->keeper = rest->keeper;
  for (const auto& [id, start] : rest->starts) seen->starts[id] = start;
  for (const auto& [id, exit] : rest->exits) seen->exits[id] = exit;
  INVARIANT(*seen == facts, "nothing is missed, whenever one looks");
}

// Who follows a killed writer cuts off what it left half written, and goes on.
void check_next_writer(const LaunchDir& directory, const Result<LaunchFacts>& before) {
  auto writer = FactsWriter::open(directory);
  INVARIANT(writer.ok(), "whatever it holds, it opens");
  const ReplicaId id{{4, 2}, Role::Ps, 3};
  ReplicaExit exit;
  exit.code = 3;
  exit.cause = "exit code 3";
  INVARIANT(writer->add(id, exit).ok() && writer->sync().ok(), "a fact is added");
  const auto after = read_facts(directory);
  INVARIANT(after.ok() == before.ok(), "what was damaged stays it, and nothing else becomes it");
  if (!before.ok()) return;
  LaunchFacts expected = *before;
  expected.exits[id] = exit;
  INVARIANT(*after == expected, "what was added comes after what was there");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Scratch scratch, other;
  static const LaunchDir directory(scratch.path()), copy(other.path());
  std::string file;
  for (const Step& step : steps_of(data, size)) apply(step, file);
  put(directory.record(), file);

  const auto key = directory.begun_key();
  INVARIANT(!key || good_frames(file).front().payload == *key, "a key passed its checksum");
  const auto launch = directory.read_launch();
  check_refusal(launch);
  if (launch.ok() && *launch) check_launch(**launch, copy);
  const auto facts = read_facts(directory);
  check_refusal(facts);
  if (facts.ok() && !comparable(*facts)) return 0;
  if (facts.ok()) {
    check_facts(*facts, copy);
    check_growing(file, *facts, directory);
  }
  check_next_writer(directory, facts);
  return 0;
}
