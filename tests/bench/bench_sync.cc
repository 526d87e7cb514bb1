// Sync against rsync: nothing changed (1k, 20k, 100k files), and the first time (100 MB in 10k
// files).
//
//   bench_sync [rounds] [folder]
//
// Every measurement is a process of its own, from its start to its end, the contenders taking
// turns. The ceiling of a sync without changes is a walk that does nothing but stat; of a first
// one, cp -r. rsync writes files and does not sync them; ours ends durable in the daemon's pack,
// and the second line of the first sync adds the tree that replicas run in.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "daemon/blobs.h"
#include "runner/trees.h"
#include "schema/listing.h"
#include "schema/snapshot.h"

namespace {

namespace fs = std::filesystem;
using namespace dtrain;

// ---- what is measured, each in its own process

Status stat_walk(int directory) {
  Listing names;
  TRY(names.read(directory));
  for (size_t i = 0; i < names.size(); ++i) {
    struct stat st {};
    ::fstatat(directory, names.name(i), &st, AT_SYMLINK_NOFOLLOW);
    if (!S_ISDIR(st.st_mode)) continue;
    const Fd below(::openat(directory, names.name(i), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    TRY(stat_walk(below.get()));
  }
  return ok();
}

Status walk(const fs::path& root) {
  const Fd directory(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return stat_walk(directory.get());
}

Status snapshot(const fs::path& root, const fs::path& cache) {
  SnapshotOptions options;
  options.stat_cache = cache;
  TRY(take_snapshot(root, options));
  return ok();
}

// Snapshot, compression and the durable pack; with `trees` also the tree of the host.
Status first_sync(const fs::path& root, const fs::path& store, bool with_tree) {
  TRY(const Snapshot taken, take_snapshot(root, {}));
  TRY(const auto blobs, daemon::Blobs::open(store / "blobs"));
  SnapshotBlobs source(root, taken);
  TRY(const auto pack, blobs->begin());
  TRY(const pb::Manifest manifest, parse_manifest(taken.manifest_bytes));
  std::vector<Sha256> names{taken.root};
  for (const auto& entry : manifest.entry()) {
    if (entry.kind() != pb::Entry::FILE) continue;
    TRY(names.emplace_back(), sha256_from_bytes(entry.sha256()));
  }
  for (const Sha256& name : blobs->missing(names)) {
    TRY(const uint64_t size, source.size(name));
    TRY(source.send(
        name, [&](std::string_view part, bool last) { return pack->add(name, size, part, last); }));
  }
  TRY(pack->commit());
  if (!with_tree) return ok();
  TRY(const auto trees, runner::Trees::open(store / "trees"));
  const auto fetch = [&](const std::vector<Sha256>& missing,
                         runner::TreeBuilder& builder) -> Status {
    std::string frame;
    for (const Sha256& name : missing) {
      TRY(const auto stored, blobs->find(name));
      frame.resize(stored.stored_bytes);
      const ssize_t got =
          ::pread(stored.fd.get(), frame.data(), frame.size(), static_cast<off_t>(stored.offset));
      if (got != static_cast<ssize_t>(frame.size())) return errno_error("read", errno);
      TRY(builder.add(name, stored.size_bytes, frame, true));
    }
    return ok();
  };
  TRY(runner::ensure_tree(*trees, taken.root, fetch));
  return ok();
}

int run_part(const std::string& part, char** arguments) {
  Status status = ok();
  if (part == "walk") status = walk(arguments[0]);
  if (part == "snapshot") status = snapshot(arguments[0], arguments[1]);
  if (part == "pack") status = first_sync(arguments[0], arguments[1], false);
  if (part == "pack+tree") status = first_sync(arguments[0], arguments[1], true);
  if (!status.ok()) fmt::print(stderr, "{}: {}\n", part, status.error().message);
  return status.ok() ? 0 : 1;
}

// ---- taking turns

double run_ms(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = ::fork();
  if (child == 0) {
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  if (status != 0) {
    fmt::print(stderr, "bench_sync: {} failed\n", command[0]);
    std::exit(1);
  }
  return took.count();
}

struct Contender {
  std::string name;
  std::vector<std::string> command;
  fs::path fresh;  // removed before each round; may be empty
  std::vector<double> ms = {};

  double median() const {
    std::vector<double> sorted = ms;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

void compare(const std::string& what, std::vector<Contender> contenders, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    for (Contender& contender : contenders) {
      if (!contender.fresh.empty()) {
        (void)remove_tree(contender.fresh).ok();
        fs::create_directories(contender.fresh);
      }
      contender.ms.push_back(run_ms(contender.command));
    }
  }
  // The first is the ceiling, the second the peer.
  for (const Contender& contender : contenders) {
    fmt::print("{:<28} {:<22} {:>9.1f} {:>9.2f} {:>9.2f}\n", what, contender.name,
               contender.median(), contender.median() / contenders[1].median(),
               contender.median() / contenders[0].median());
  }
  std::fflush(stdout);
}

// ---- what is synced

void write_files(const fs::path& root, int files, size_t bytes_each) {
  std::mt19937_64 random(1);
  std::string text;
  for (int i = 0; i < files; ++i) {
    const fs::path folder = root / fmt::format("d{:04}", i / 100);
    if (i % 100 == 0) fs::create_directories(folder);
    text.clear();
    // Compresses about as well as source text does.
    while (text.size() < bytes_each) text += fmt::format("{:x} = w{}\n", random(), random() % 100);
    text.resize(bytes_each);
    std::ofstream(folder / fmt::format("file{}.txt", i)) << text;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 3 && std::string(argv[1]) == "--part") return run_part(argv[2], argv + 3);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  const fs::path folder = (argc > 2 ? fs::path(argv[2]) : fs::temp_directory_path()) /
                          fmt::format("bench-sync-{}", ::getpid());
  const std::string self = fs::read_symlink("/proc/self/exe");
  const auto part = [&](const char* name, std::vector<std::string> arguments) {
    std::vector<std::string> command{self, "--part", name};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  };
  fmt::print("{:<28} {:<22} {:>9} {:>9} {:>9}\n", "median of " + std::to_string(rounds), "", "ms",
             "/ rsync", "/ ceiling");
  for (const int files : {1000, 20'000, 100'000}) {
    const fs::path root = folder / fmt::format("p{}", files);
    const std::string copy = root.native() + ".copy";
    const std::string cache = root.native() + ".cache";
    write_files(root, files, 50);
    run_ms({"rsync", "-a", root.native() + "/", copy});
    // Twice: what was young in the first walk is settled in the second.
    for (int i = 0; i < 2; ++i) run_ms(part("snapshot", {root, cache}));
    compare(fmt::format("no change, {} files", files),
            {{"walk with stat", part("walk", {root}), {}},
             {"rsync -a", {"rsync", "-a", root.native() + "/", copy}, {}},
             {"dtrain", part("snapshot", {root, cache}), {}}},
            rounds);
  }
  const fs::path root = folder / "first";
  write_files(root, 10'000, 10'000);
  const fs::path target = folder / "target";
  compare("first, 100 MB in 10k files",
          {{"cp -r", {"cp", "-r", root, target}, target},
           {"rsync -a", {"rsync", "-a", root.native() + "/", target}, target},
           {"dtrain, in the pack", part("pack", {root, target}), target},
           {"dtrain, and the tree", part("pack+tree", {root, target}), target}},
          std::min(rounds, 5));
  (void)remove_tree(folder).ok();
  return 0;
}
