// What is said to a Slurm, and what it answers: the words of sbatch, squeue and scancel. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "schema/config.h"
#include "schema/access_key.h"
#include "schema/result.h"

namespace dtrain::daemon::slurm {

// One job of as many nodes as there are hosts.
struct Request {
  std::string name;      // of the job
  int hosts = 0;
  AccessKey key;           // by which its hosts join
  std::string dtrain;    // the program's path on its nodes, where the pool names none
  std::string log;       // what it says goes there, where its nodes see the directory
  PortRange ports;       // that its hosts' replicas may listen on
};

std::vector<std::string> submit_words(const SlurmPool& pool, const Request& request);
// The job's script: on each node a runner with a home of its own below TMPDIR, which goes with it.
std::string script(const SlurmPool& pool, const Request& request);
// Of what sbatch printed: the job. Unavailable: it is none.
Result<std::string> submitted_job(std::string_view output);

struct Job {
  std::string id;
  std::string state;    // Slurm's word: PENDING, RUNNING, COMPLETED
  std::string reason;   // why it waits, or "None"
};
// All jobs of this user, those that ended lately too.
std::vector<std::string> queue_words();
std::map<std::string, Job> queued_jobs(std::string_view output);   // by their names
std::vector<std::string> cancel_words(const std::string& job);

bool is_over(const Job& job);

}  // namespace dtrain::daemon::slurm
