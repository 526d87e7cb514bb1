// What `dtrain hosts test` found, and what of it is not as it should be. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/view.h"
#include "schema/dtrain.pb.h"
#include "schema/hosts_test.h"

namespace dtrain::cli {

struct TestedHost {
  pb::HostInfo info;
  std::string address;                       // by which the others reach its replica; empty: it has none yet
  uint32_t port = 0;
  std::optional<uint64_t> started_after_ms;  // since the submission; nothing: it did not start
  std::optional<ProbeBegan> began;           // nothing: it said nothing
  std::optional<ProbeDisk> work, output;
  std::optional<ProbeWrote> wrote;
  bool arrived = false;                      // what it wrote to OUTPUT_DIR is at home, with the right bytes
  bool done = false;
  bool is_away = false;                      // since
  std::string end;                           // how its replica ended that ended otherwise than it should
  std::map<int, ProbeReach> reaches;         // by the index of the other
  std::map<int, ProbeLink> links;
};

struct NotTested {
  std::string host;
  std::string why;            // "is drained"
  std::string hint;
  bool is_trouble = false;
};

struct HostsTest {
  std::string id;             // of the experiment; empty: there was none
  std::string sent;           // SHA-256 of what was sent with it, in hex
  std::vector<TestedHost> hosts;
  std::vector<NotTested> others;
  std::optional<ProbeLeftOut> left_out;
  std::string not_started;    // why, where not all did; ends without a stop
};

struct HostsTrouble {
  std::string host;           // by name; empty: of all of them
  std::string other;          // with which; empty: it is the host's own
  std::string text;
  std::string hint;
  bool operator==(const HostsTrouble&) const = default;
};

// In the order in which they are best looked at.
std::vector<HostsTrouble> troubles_of(const HostsTest& test);

// A table, and a line for each trouble and for each host that was left out.
std::string render_hosts_test(const HostsTest& test, const View& view);

// {"experiment","ok","hosts","links","not_tested","rounds_left_out","troubles"}
std::string to_json(const HostsTest& test);

}  // namespace dtrain::cli
