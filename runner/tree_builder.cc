#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <unordered_map>
#include <utility>

#include "runner/file_copy.h"
#include "runner/tree_note.h"
#include "runner/trees.h"
#include "schema/blob.h"
#include "schema/manifest.h"

namespace dtrain::runner {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kManifestBytesMax = uint64_t{256} << 20;  // as the daemon takes them
// How many of the latest trees are searched for files a new one has too.
constexpr size_t kTreesToShareWith = 3;

}  // namespace

struct TreeBuilder::State {
  State(Trees& all, const Sha256& name, fs::path unfinished)
      : trees(all), root(name), path(std::move(unfinished)) {}

  Trees& trees;
  const Sha256 root;
  const fs::path path;

  std::string manifest_bytes;
  pb::Manifest manifest;
  std::optional<TreeWriter> writer;  // from the manifest on
  // The entries that wait for each blob, and the blobs in manifest order.
  std::unordered_map<Sha256, std::vector<const pb::Entry*>, Sha256Hash> waiting;
  std::vector<Sha256> order;

  BlobDecoder decoder;
  std::optional<Sha256> current;  // the blob whose parts come in
  Fd file;

  Status start();
  Status share_files_of(const KnownTree& tree);
  Status begin_blob(const Sha256& name, uint64_t size_bytes);
  Status end_blob(const Sha256& name);
  Result<bool> repeat_file(const pb::Entry& done, const pb::Entry& again);
};

// With the manifest there: makes what needs no blob, and finds out which blobs are needed.
Status TreeBuilder::State::start() {
  TRY(manifest, parse_manifest(manifest_bytes));
  TRY(writer, TreeWriter::begin(manifest, path));
  const Sha256 nothing = sha256("");
  for (const pb::Entry& entry : manifest.entry()) {
    if (entry.kind() != pb::Entry::FILE) continue;
    TRY(const Sha256 name, sha256_from_bytes(entry.sha256()));
    if (name == nothing) {
      TRY(writer->create_file(entry));
    } else {
      waiting[name].push_back(&entry);
      order.push_back(name);
    }
  }
  const auto others = known_trees(trees.folder_);
  for (size_t i = 0; i < std::min(others.size(), kTreesToShareWith); ++i) {
    if (waiting.empty()) break;
    TRY(const bool usable, trees.is_usable(others[i].root));
    if (usable) TRY(share_files_of(others[i]));
  }
  return ok();
}

// One more name for each file that `tree` has with the same bytes and mode.
Status TreeBuilder::State::share_files_of(const KnownTree& tree) {
  const auto note = read_note(tree.note);
  const Fd directory(::open(tree.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!note.ok() || !directory) return ok();
  std::string_view rest = note->manifest;
  for (ManifestEntry theirs; read_entry(rest, theirs) && !waiting.empty();) {
    if (theirs.kind != pb::Entry::FILE) continue;
    TRY(const Sha256 name, sha256_from_bytes(theirs.sha256));
    const auto found = waiting.find(name);
    if (found == waiting.end()) continue;
    const std::string existing(theirs.path);
    std::vector<const pb::Entry*>& wanted = found->second;
    for (size_t i = 0; i < wanted.size();) {
      if (wanted[i]->mode() != theirs.mode) {
        ++i;
        continue;
      }
      TRY(const bool linked, writer->link_file(*wanted[i], directory.get(), existing.c_str()));
      if (!linked) break;  // it has as many names as a file may have, or takes none
      wanted[i] = wanted.back();
      wanted.pop_back();
    }
    if (wanted.empty()) waiting.erase(found);
  }
  return ok();
}

Status TreeBuilder::State::begin_blob(const Sha256& name, uint64_t size_bytes) {
  current = name;
  if (!writer) {
    if (name != root || size_bytes > kManifestBytesMax) {
      return Error{Code::DataLoss, "the manifest was expected, and something else came", ""};
    }
    decoder.begin(name, size_bytes, -1, &manifest_bytes);
    return ok();
  }
  const auto found = waiting.find(name);
  if (found == waiting.end() || found->second.front()->size() != size_bytes) {
    return Error{Code::DataLoss, fmt::format("blob {} was not asked for", to_hex(name)), ""};
  }
  TRY(file, writer->create_file(*found->second.front()));
  decoder.begin(name, size_bytes, file.get());
  return ok();
}

Status TreeBuilder::State::end_blob(const Sha256& name) {
  TRY(decoder.finish());
  current.reset();
  file.reset();
  if (!writer) return start();
  const auto found = waiting.find(name);
  const std::vector<const pb::Entry*>& entries = found->second;
  const pb::Entry* done = entries[0];
  for (size_t i = 1; i < entries.size(); ++i) {
    TRY(const bool linked, repeat_file(*done, *entries[i]));
    // The last copy has fewer names than a file may have.
    if (!linked && entries[i]->mode() == done->mode()) done = entries[i];
  }
  waiting.erase(found);
  return ok();
}

// True: as one more name of it; else a copy.
Result<bool> TreeBuilder::State::repeat_file(const pb::Entry& done, const pb::Entry& again) {
  if (done.mode() == again.mode()) {
    TRY(const bool linked, writer->link_file(again, writer->root(), done.path().c_str()));
    if (linked) return true;
  }
  const Fd from(::openat(writer->root(), done.path().c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!from) return errno_error("open " + done.path(), errno);
  TRY(const Fd to, writer->create_file(again));
  TRY(copy_file(from.get(), to.get(), CopyKind::CloneOrBytes));
  return false;
}

Result<std::unique_ptr<TreeBuilder>> Trees::build(const Sha256& root) {
  auto state = std::make_unique<TreeBuilder::State>(*this, root, unfinished_path());
  return std::unique_ptr<TreeBuilder>(new TreeBuilder(std::move(state)));
}

TreeBuilder::TreeBuilder(std::unique_ptr<State> state) : state_(std::move(state)) {}

TreeBuilder::~TreeBuilder() {
  if (!state_->writer) return;
  state_->writer.reset();
  (void)remove_tree(state_->path).ok();
}

std::vector<Sha256> TreeBuilder::missing() const {
  if (!state_->writer) return {state_->root};
  std::vector<Sha256> names;
  std::set<Sha256> seen;
  for (const Sha256& name : state_->order) {
    if (state_->waiting.contains(name) && seen.insert(name).second) names.push_back(name);
  }
  return names;
}

Status TreeBuilder::add(const Sha256& name, uint64_t size_bytes, std::string_view part, bool last) {
  if (!state_->current) TRY(state_->begin_blob(name, size_bytes));
  if (*state_->current != name) return Error{Code::DataLoss, "parts of two blobs are mixed", ""};
  TRY(state_->decoder.add(part));
  return last ? state_->end_blob(name) : ok();
}

Result<fs::path> TreeBuilder::finish() {
  State& s = *state_;
  INVARIANT(s.writer && s.waiting.empty(), "a tree is finished once missing() is empty");
  TRY(s.writer->finish());
  TRY(write_note(s.trees.note_path(s.root), s.manifest_bytes));
  const fs::path tree = s.trees.tree_path(s.root);
  s.writer.reset();
  if (::rename(s.path.c_str(), tree.c_str()) != 0) {
    const int error = errno;
    TRY(remove_tree(s.path));
    // Another builder was faster: its tree is the same.
    if (error != EEXIST && error != ENOTEMPTY) return errno_error("name " + tree.native(), error);
  }
  s.trees.checked_.insert(s.root);
  s.trees.grown_ = true;
  return tree;
}

Result<fs::path> ensure_tree(
    Trees& trees, const Sha256& root,
    const std::function<Status(const std::vector<Sha256>& missing, TreeBuilder& builder)>& fetch) {
  TRY(const auto tree, trees.find(root));
  if (tree) return *tree;
  TRY(const auto builder, trees.build(root));
  // The manifest, then the files; what is missing after that is not coming.
  for (int round = 0; round < 2; ++round) {
    const auto missing = builder->missing();
    if (!missing.empty()) TRY(fetch(missing, *builder));
  }
  if (!builder->missing().empty()) {
    return Error{Code::DataLoss, "files of the snapshot did not come", "submit again"};
  }
  return builder->finish();
}

}  // namespace dtrain::runner
