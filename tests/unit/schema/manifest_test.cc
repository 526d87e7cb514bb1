#include "schema/manifest.h"

#include <doctest/doctest.h>

#include <functional>

#include "schema/sha256.h"

namespace dtrain {
namespace {

const std::string kDigest(32, '\x5a');

ManifestEntry file(std::string_view path, uint32_t mode = 0644, uint64_t size = 5) {
  return {path, pb::Entry::FILE, mode, size, kDigest, "", ""};
}
ManifestEntry directory(std::string_view path) {
  return {path, pb::Entry::DIRECTORY, 0755, 0, "", "", ""};
}
ManifestEntry link(std::string_view path, std::string_view target) {
  return {path, pb::Entry::SYMLINK, 0777, 0, "", target, ""};
}

std::string manifest_of(std::initializer_list<ManifestEntry> entries) {
  std::string bytes;
  for (const ManifestEntry& entry : entries) append_entry(bytes, entry);
  return bytes;
}

TEST_CASE("the bytes are those protobuf writes, and read back") {
  const std::string bytes =
      manifest_of({file("a", 0, 0), directory("d"), file("d/\xff\n x", 0777, uint64_t{1} << 40),
                   link("d/l", "../a"), file(std::string(200, 'n'), 0644, 300)});
  pb::Manifest manifest;
  REQUIRE(manifest.ParseFromString(bytes));
  CHECK(manifest.SerializeAsString() == bytes);
  CHECK(manifest.entry_size() == 5);
  CHECK(manifest.entry(2).path() == "d/\xff\n x");
  CHECK(manifest.entry(2).size() == uint64_t{1} << 40);
  CHECK(manifest.entry(3).target() == "../a");

  std::string_view rest = bytes;
  std::string again;
  ManifestEntry entry;
  for (; read_entry(rest, entry); append_entry(again, entry)) {
    std::string one;
    append_entry(one, entry);
    CHECK(entry.encoded == one);
  }
  CHECK(rest.empty());
  CHECK(again == bytes);
}

TEST_CASE("no cut or flipped byte makes the reader leave its bytes") {
  const std::string bytes = manifest_of({file("some/path"), link("x", "y")});
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int change : {1, 0x80, 0xff}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ change);
      for (const std::string_view all :
           {std::string_view(damaged), std::string_view(bytes).substr(0, at)}) {
        std::string_view rest = all;
        ManifestEntry entry;
        while (read_entry(rest, entry)) {
          CHECK(entry.encoded.data() >= all.data());
          CHECK(entry.encoded.data() + entry.encoded.size() <= all.data() + all.size());
        }
      }
    }
  }
}

TEST_CASE("paths compare as a walk visits them") {
  const char* const order[] = {"a",   "a/b", "a/b/c", "a/c",    "a-b",
                               "a.b", "ab",  "b",     "b/\xff", "\xff"};
  for (size_t i = 0; i < std::size(order); ++i) {
    for (size_t j = 0; j < std::size(order); ++j) {
      CHECK((compare_paths(order[i], order[j]) < 0) == (i < j));
      CHECK((compare_paths(order[i], order[j]) == 0) == (i == j));
    }
  }
}

TEST_CASE("links that leave the tree are told from those that don't") {
  CHECK(!leaves_tree("l", "a"));
  CHECK(leaves_tree("l", ".."));
  CHECK(leaves_tree("l", "../x"));
  CHECK(!leaves_tree("d/l", "../x"));
  CHECK(leaves_tree("d/l", "../../x"));
  CHECK(leaves_tree("d/l", "a/../../../x"));
  CHECK(!leaves_tree("d/l", "a/../.././/x"));
  CHECK(!leaves_tree("l", "/etc/passwd"));
  CHECK(!leaves_tree("l", "..x/.."));
}

TEST_CASE("a good manifest passes") {
  CHECK(parse_manifest("").ok());
  CHECK(parse_manifest(manifest_of({file("-rf"), directory("a"), directory("a/b"), file("a/b/c"),
                                    file("a/c"), file("a-b"), link("data", "/mnt/data")}))
            .ok());
}

TEST_CASE("hostile manifests are refused, each with its path") {
  const auto long_name = std::string(256, 'x');
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += i == 0 ? "d" : "/d";
  struct Row {
    const char* what;
    std::string bytes;
  };
  auto with_target = file("f");
  with_target.target = "t";
  auto no_digest = file("f");
  no_digest.sha256 = "short";
  auto odd_kind = file("f");
  odd_kind.kind = static_cast<pb::Entry::Kind>(7);
  const Row rows[] = {
      {"absolute", manifest_of({file("/etc/passwd")})},
      {"parent", manifest_of({file("../x")})},
      {"parent inside", manifest_of({directory("a"), file("a/../b")})},
      {"dot", manifest_of({file("./a")})},
      {"empty path", manifest_of({file("")})},
      {"empty part", manifest_of({directory("a"), file("a//b")})},
      {"slash at the end", manifest_of({directory("a/")})},
      {"NUL", manifest_of({file(std::string_view("a\0b", 3))})},
      {"unsorted", manifest_of({file("b"), file("a")})},
      {"twice", manifest_of({file("a"), file("a")})},
      {"no parent", manifest_of({file("a/b")})},
      {"parent a file", manifest_of({file("a"), file("a/b")})},
      {"parent a link", manifest_of({link("a", "/tmp"), file("a/b")})},
      {"link out", manifest_of({link("a", "../../etc")})},
      {"link to nothing", manifest_of({link("a", "")})},
      {"setuid", manifest_of({file("a", 04755)})},
      {"long name", manifest_of({file(long_name)})},
      {"deep", manifest_of({file(deep)})},
      {"file with target", manifest_of({with_target})},
      {"no digest", manifest_of({no_digest})},
      {"odd kind", manifest_of({odd_kind})},
      {"huge", manifest_of({file("a", 0644, UINT64_MAX)})},
      {"not one", "\x0a\xff\xff\xff\xff\x0f"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const auto parsed = parse_manifest(row.bytes);
    REQUIRE(!parsed.ok());
    CHECK(parsed.error().code == Code::InvalidArgument);
    CHECK(parsed.error().message.starts_with("bad manifest: "));
  }
}

}  // namespace
}  // namespace dtrain
