#include "schema/access_key.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "schema/config.h"
#include "schema/endpoint.h"
#include "schema/small_file.h"

namespace dtrain {

namespace {

constexpr std::string_view kBegin = "-----BEGIN ", kEnd = "-----END ";

constexpr std::string_view word_of(KeyOf of) { return of == KeyOf::Host ? "host" : "user"; }

std::string first_line_of(KeyOf of) { return fmt::format("dtrain {} key 1\n", word_of(of)); }

// The value of the line "word: value" that `text` begins with, which loses it; empty: it begins with another.
std::string take_line(std::string_view& text, std::string_view word) {
  const size_t end = text.find('\n');
  if (!text.starts_with(word) || !text.substr(word.size()).starts_with(": ") || end == std::string_view::npos) return {};
  std::string value(text.substr(0, end).substr(word.size() + 2));
  text.remove_prefix(end + 1);
  return value;
}

// The next PEM block of `text`, which loses it; empty: there is none.
std::string take_block(std::string_view& text) {
  const size_t begin = text.find(kBegin);
  const size_t last_line = begin == std::string_view::npos ? begin : text.find(kEnd, begin);
  if (last_line == std::string_view::npos) return {};
  const size_t end = std::min(text.find('\n', last_line), text.size() - 1) + 1;
  std::string block(text.substr(begin, end - begin));
  text.remove_prefix(end);
  return block;
}

Error of_the_other(KeyOf of, std::string_view source) {
  if (of == KeyOf::Host) {
    return {Code::InvalidArgument, fmt::format("{} is a person's key, and no host joins by it", source),
            "`dtrain hosts invite NAME`, where the daemon runs, writes a host's"};
  }
  return {Code::InvalidArgument, fmt::format("{} is a host's key, and nobody uses the daemon by it", source),
          "`dtrain users invite NAME`, where the daemon runs, writes a person's"};
}

// As SSH has it with its own.
Status check_private(const std::string& file, KeyOf of) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) != 0 || facts.st_uid != ::geteuid() || (facts.st_mode & 077) == 0) return ok();
  return Error{Code::FailedPrecondition, fmt::format("{} can be read by others", file),
               fmt::format("chmod 600 {}; if they may have read it, have it revoked (`dtrain {}s revoke`) and another made", file,
                           word_of(of))};
}

}  // namespace

bool begins_as_access_key(std::string_view text) {
  text = text.substr(0, kAccessKeyMark);
  return text == first_line_of(KeyOf::Host).substr(0, kAccessKeyMark) || text == first_line_of(KeyOf::User).substr(0, kAccessKeyMark);
}

std::string to_text(const AccessKey& key) {
  return fmt::format("{}{}: {}\ndaemon: {}\n{}{}{}", first_line_of(key.of), word_of(key.of), key.name, key.daemon,
                     key.authority, key.certificate, key.secret);
}

Result<AccessKey> parse_access_key(std::string_view text, KeyOf of, std::string_view source) {
  const Error broken{Code::InvalidArgument, fmt::format("{} is not a {}'s key", source, word_of(of)),
                     fmt::format("`dtrain {}s invite NAME`, where the daemon runs, writes one", word_of(of))};
  if (text.starts_with(first_line_of(of == KeyOf::Host ? KeyOf::User : KeyOf::Host))) return of_the_other(of, source);
  const std::string first_line = first_line_of(of);
  if (!text.starts_with(first_line)) return broken;
  text.remove_prefix(first_line.size());
  AccessKey key;
  key.of = of;
  key.name = take_line(text, word_of(of));
  key.daemon = take_line(text, "daemon");
  for (std::string* part : {&key.authority, &key.certificate, &key.secret}) {
    *part = take_block(text);
    if (part->empty()) return broken;
  }
  const auto daemon = parse_endpoint(key.daemon);
  if (!is_host_name(key.name) || !daemon || daemon->port == 0) return broken;
  return key;
}

Result<AccessKey> read_access_key(const std::string& file, KeyOf of) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode)) {
    return Error{Code::InvalidArgument, fmt::format("{} is no file", file), ""};
  }
  TRY(const auto text, read_file(file));
  if (!text) {
    return Error{Code::NotFound, fmt::format("there is no key {}", file), file.starts_with("~") ? "no shell has put your home in place of ~: $HOME" : ""};
  }
  TRY(AccessKey key, parse_access_key(*text, of, file));
  TRY(check_private(file, of));
  return key;
}

}  // namespace dtrain
