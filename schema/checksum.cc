#include "schema/checksum.h"

#include <xxhash.h>

#include <new>

namespace dtrain {

Checksum::Checksum() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}

void Checksum::add(std::string_view part) { XXH3_64bits_update(state_.get(), part.data(), part.size()); }

uint64_t Checksum::value() const { return XXH3_64bits_digest(state_.get()); }

void Checksum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

}  // namespace dtrain
