// Any bytes as dtrain.yml, with any argument as override: a Spec or an error, and a Spec comes back
// from its own YAML.
#include <cstdint>
#include <string_view>

#include "schema/expand.h"
#include "schema/spec.h"

using namespace dtrain;

namespace {

void check_spec(const Spec& spec) {
  const std::string yaml = to_yaml(spec);
  const auto again = parse_spec(yaml, {});
  INVARIANT(again.ok(), "canonical YAML is accepted");
  INVARIANT(*again == spec, "canonical YAML means the same");
  INVARIANT(to_yaml(*again) == yaml, "canonical YAML is canonical");
  INVARIANT(spec.member_count() <= kMaxMembers, "no set is larger than allowed");
  const auto last = static_cast<uint32_t>(spec.member_count());
  INVARIANT(!member_spec(spec, last).is_set(), "a member is one experiment");
}

}  // namespace

// The first byte chooses: the file name, and whether what follows the first NUL is an argument.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  ParseOptions options;
  if (data[0] & 1) options.file_name = "riseml.yml";
  const size_t nul = text.find('\0');
  if ((data[0] & 2) && nul != std::string_view::npos) {
    const std::string argument(text.substr(nul + 1));
    const size_t equals = argument.find('=');
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    auto& overrides = data[0] & 4 ? options.set : options.parameters;
    overrides.emplace_back(argument.substr(0, equals), value);
    text = text.substr(0, nul);
  }
  const auto spec = parse_spec(text, options);
  if (spec.ok()) {
    check_spec(*spec);
  } else {
    INVARIANT(!spec.error().message.empty(), "a refusal says why");
  }
  return 0;
}
