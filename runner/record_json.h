// What the records beside a launch have in common as JSON (launch_dir.h, launch_facts.h).
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "runner/process_identity.h"
#include "schema/result.h"

namespace dtrain::runner {

// Of every record. A reader knows this one and the one before.
inline constexpr int kRecordFormat = 1;

// Arguments and environments are bytes, JSON strings are UTF-8: what isn't becomes {"hex": "..."}.
nlohmann::json from_bytes(const std::string& bytes);
nlohmann::json from_identity(const ProcessIdentity& identity);

// These throw a std::exception on anything unexpected; parse_record() catches.
std::string to_bytes(const nlohmann::json& text);
ProcessIdentity to_identity(const nlohmann::json& record);
template <typename T>
T valid(Result<T> parsed) {
  if (!parsed.ok()) throw std::invalid_argument(parsed.error().message);
  return std::move(parsed).value();
}

// One line. A name that isn't UTF-8 is replaced rather than refused.
std::string record_text(nlohmann::json record);

// Throws unless its format is one this version reads.
void check_format(const nlohmann::json& record);

// Runs `read` on the record; DataLoss, naming `what`, for anything it can't be.
template <typename Read>
auto parse_record(std::string_view text, const std::string& what, Read read)
    -> Result<decltype(read(nlohmann::json()))> {
  try {
    const nlohmann::json record = nlohmann::json::parse(text);
    check_format(record);
    return read(record);
  } catch (const std::exception& e) {
    return Error{Code::DataLoss, fmt::format("{} is damaged: {}", what, e.what()), ""};
  }
}

}  // namespace dtrain::runner
