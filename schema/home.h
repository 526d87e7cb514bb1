// DTRAIN_HOME: where everything of one dtrain lives, so that several can share a machine.
//
// Only names are fixed here. The folders below the root are made by their owner: the daemon (db,
// blobs, logs, outputs) and the runner (runner).
#pragma once

#include <filesystem>
#include <string_view>

#include "schema/result.h"

namespace dtrain {

// What a directory that was a home once always has.
inline constexpr std::string_view kHomeLock = "daemon.lock", kHomeBlobs = "blobs";

struct Home {
  std::filesystem::path root;         // absolute
  std::filesystem::path socket_path;  // what the daemon listens on; at most 107 bytes

  std::filesystem::path config() const { return root / "config.yml"; }
  std::filesystem::path lock() const { return root / kHomeLock; }
  std::filesystem::path database() const { return root / "db"; }
  std::filesystem::path blobs() const { return root / kHomeBlobs; }
  std::filesystem::path logs() const { return root / "logs"; }        // logs/<id>
  std::filesystem::path outputs() const { return root / "outputs"; }  // outputs/<id>
  std::filesystem::path keys() const { return root / "keys"; }        // of hosts that join over the network
  std::filesystem::path pools() const { return root / "pools"; }      // what the jobs said that brought hosts
  std::filesystem::path runner() const { return root / "runner"; }    // of the local runner
  std::filesystem::path socket() const { return socket_path; }
  std::filesystem::path daemon_log() const { return root / "daemon.log"; }
  std::filesystem::path runner_log() const { return root / "runner.log"; }
  // Written by `daemon stop`: nobody starts a daemon by himself while it is there.
  std::filesystem::path stopped_marker() const { return root / "stopped"; }
};

// $DTRAIN_HOME (InvalidArgument when relative), else $XDG_STATE_HOME/dtrain, else
// ~/.local/state/dtrain. See open_home.
Result<Home> home_from_environment();

// Makes `root` absolute and creates it with mode 0700. PermissionDenied for a home that belongs to
// another user. The socket is root/socket unless that is too long for a Unix socket's address, or has what
// is none in one; then it moves to a private folder of the user's run time directory.
Result<Home> open_home(const std::filesystem::path& root);

}  // namespace dtrain
