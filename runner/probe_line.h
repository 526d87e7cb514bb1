// One connection between two probes: made, greeted, and measured. Everything ends by a deadline, whatever the other does;
// only where an address is a name the resolver takes its own time.
//
// Who dials says which experiment it is of, whom it means and what it wants; who is that one answers yes, and both do as
// the purpose has it. So a stranger at that address, or another host than the one meant, is told from the one meant.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "schema/fd.h"
#include "schema/hosts_test.h"
#include "schema/result.h"

namespace dtrain::runner {

using ProbeTime = std::chrono::steady_clock::time_point;

enum class ProbePurpose : char {
  Hello = 'H',    // nothing more
  Ping = 'P',     // each byte is answered by a line: what the clock there says, in microseconds
  Upload = 'U',   // bytes until the dialling end is done; the answer is a line: how many a second came
  Download = 'D', // bytes the other way
  Orders = 'O',   // lines that say what to do, each answered by one; the dialling end gives them
  Work = 'W',     // the same, given by the other end
  Finish = 'F',   // all is measured
};

struct ProbePeer {
  int index = 0;
  std::string address;
  int port = 0;
};

struct ProbeGreeting {
  std::string experiment;   // no other has it
  int from = 0;
  int to = 0;
  ProbePurpose purpose = ProbePurpose::Hello;
};

// A connection that is greeted, or why there is none.
struct ProbeDialled {
  Fd fd;
  Reach reach = Reach::Other;
  std::string error;
};
// `waits_for_it`: where nobody listens there yet it is dialled again until the deadline.
ProbeDialled dial_probe(const ProbePeer& peer, const ProbeGreeting& greeting, ProbeTime deadline, bool waits_for_it);

// Who has dialled here. Nothing: nobody that belongs here. Who does waits to be greeted.
std::optional<ProbeGreeting> read_greeting(int fd, const std::string& experiment, int own, ProbeTime deadline);
bool greet(int fd, ProbeTime deadline);

// A line without its end. Nothing: none came by then.
std::optional<std::string> read_probe_line(int fd, ProbeTime deadline);
bool write_probe_line(int fd, const std::string& line, ProbeTime deadline);

// Both ends of the measurements. 0: nothing came, or there was no answer.
double send_for_a_while(int fd, ProbeTime deadline);                 // the rate that the other end tells
double receive_for_a_while(int fd, bool tells, ProbeTime deadline);  // and tells the other end, or not
void answer_pings(int fd, ProbeTime deadline);
struct ProbePings {
  double round_trip_ms = 0;
  double clock_ahead_ms = 0;
};
std::optional<ProbePings> ping(int fd, ProbeTime deadline);

}  // namespace dtrain::runner
