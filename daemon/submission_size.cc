#include "daemon/submission_size.h"

#include "schema/cluster_env.h"
#include "schema/size_text.h"
#include "schema/version.h"

namespace dtrain::daemon {

namespace {

// Of a Launch: each replica with its place, and what is always there.
constexpr uint64_t kReplicaBytes = 160;
constexpr uint64_t kOtherBytes = 16 << 10;
// A runner holds several copies of it for a moment.
constexpr uint64_t kClusterEnvBytesMax = 256 << 20;

uint64_t bytes_of(const std::map<std::string, std::string>& variables) {
  uint64_t bytes = 0;
  for (const auto& [name, value] : variables) bytes += name.size() + value.size() + 16;
  return bytes;
}

// Of its kinds of gang.
const Spec& largest(const Submission& submission) {
  const Spec* most = &submission.spec;
  for (const Spec& shape : submission.shapes) {
    if (shape.replica_count() > most->replica_count()) most = &shape;
  }
  return *most;
}

}  // namespace

Status check_size(const Submission& submission, const SubmissionExtras& extras) {
  const uint64_t yaml = submission.spec_yaml.size();
  const uint64_t shell = bytes_of(extras.secrets) + bytes_of(extras.user_env);
  const Spec& gang = largest(submission);
  const auto replicas = static_cast<uint64_t>(gang.replica_count());
  const uint64_t bytes = yaml + shell + replicas * kReplicaBytes + kOtherBytes;
  const uint64_t cluster_env = cluster_env_bytes(gang);
  if (cluster_env > kClusterEnvBytesMax) {
    return Error{Code::InvalidArgument,
                 fmt::format("the TF_CONFIGs of {} replicas, each of which names all, would take {} "
                             "together; at most {} are possible",
                             replicas, size_text(cluster_env), size_text(kClusterEnvBytesMax)),
                 "take fewer workers or parameter servers"};
  }
  if (bytes <= kMessageBytesMax) return ok();
  return Error{Code::InvalidArgument,
               fmt::format("it takes {} to tell a host of this, and at most {} can be told: {} of YAML, "
                           "{} of variables from your shell, {} for {} replicas",
                           size_text(bytes), size_text(kMessageBytesMax), size_text(yaml),
                           size_text(shell), size_text(replicas * kReplicaBytes), replicas),
               "put large values into files of the project, and read them there"};
}

}  // namespace dtrain::daemon
