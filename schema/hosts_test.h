// `dtrain hosts test`: what a replica of it runs on each host, and what that says, a line of output a fact. The daemon and
// the runners know nothing of it but which program its command is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace dtrain {

inline constexpr const char* kHostsTestProject = "hosts-test";
inline constexpr const char* kHostsProbeCommand = "dtrain hosts-probe";   // a role's only line
inline constexpr const char* kHostsTestSent = "sent";                     // the one file of the project
std::string hosts_test_output(int host);                                  // the file in OUTPUT_DIR of each

// Hosts are numbered by their places in TF_CONFIG.
struct ProbeBegan {
  std::string sent;           // SHA-256 of kHostsTestSent as it arrived, in hex; empty: it did not
  bool operator==(const ProbeBegan&) const = default;
};
struct ProbeDisk {
  bool is_output = false;     // OUTPUT_DIR, else the working directory
  double bytes_per_s = 0;     // written and synced
  uint64_t free_bytes = 0;
  std::string trouble;        // why it could not be written
  bool operator==(const ProbeDisk&) const = default;
};
// What is to be at home in the end.
struct ProbeWrote {
  std::string sha256;         // of hosts_test_output(), in hex
  bool operator==(const ProbeWrote&) const = default;
};
enum class Reach {
  Reached,
  TimedOut,   // nothing answered
  Refused,
  NoWay,      // the kernel has no route there, or one that is closed
  NoName,     // the address is a name that is not known here
  Stranger,   // something else answers
  Other,
};
struct ProbeReach {
  int to = 0;
  Reach reach = Reach::Other;
  std::string error;          // in the system's words
  bool operator==(const ProbeReach&) const = default;
};
struct ProbeLink {
  int to = 0;
  double round_trip_ms = 0;   // the median of some
  double sent_bytes_per_s = 0, received_bytes_per_s = 0;   // of one stream each
  double clock_ahead_ms = 0;  // of the other's, to half a round trip
  bool operator==(const ProbeLink&) const = default;
};
struct ProbeLeftOut {
  int rounds = 0, rounds_all = 0;   // of a tournament in which each host is in one pair at a time
  bool operator==(const ProbeLeftOut&) const = default;
};
struct ProbeDone {
  bool operator==(const ProbeDone&) const = default;
};
using ProbeFact = std::variant<ProbeBegan, ProbeDisk, ProbeWrote, ProbeReach, ProbeLink, ProbeLeftOut, ProbeDone>;

std::string to_line(const ProbeFact& fact);   // ends in a newline
// Nothing: it is no such line.
std::optional<ProbeFact> parse_probe_line(std::string_view line);

}  // namespace dtrain
