#include "runner/record_json.h"

namespace dtrain::runner {

using nlohmann::json;

json from_bytes(const std::string& bytes) {
  json text = bytes;
  try {
    (void)text.dump();
    return text;
  } catch (const json::exception&) {
    std::string hex;
    for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return {{"hex", hex}};
  }
}

std::string to_bytes(const json& text) {
  if (text.is_string()) return text.get<std::string>();
  const std::string& hex = text.at("hex").get_ref<const std::string&>();
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

json from_identity(const ProcessIdentity& identity) {
  return {{"pid", identity.pid}, {"start", identity.start_ticks}, {"boot", identity.boot_id}};
}

ProcessIdentity to_identity(const json& record) {
  return {record.at("pid").get<pid_t>(), record.at("start").get<uint64_t>(),
          record.at("boot").get<std::string>()};
}

std::string record_text(json record) {
  record["format"] = kRecordFormat;
  return record.dump(-1, ' ', false, json::error_handler_t::replace);
}

void check_format(const json& record) {
  const int format = record.at("format").get<int>();
  if (format <= kRecordFormat && format >= kRecordFormat - 1 && format >= 1) return;
  throw std::invalid_argument(fmt::format(
      "it has format {}, this dtrain reads {}: use the version that wrote it until its experiments "
      "have ended",
      format, kRecordFormat));
}

}  // namespace dtrain::runner
