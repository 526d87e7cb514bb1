// What goes before every payload between the processes of a gang once they have met. Both ends know
// from their plans how much follows; the header is how they notice that they are not in step.
#pragma once

#include <bit>
#include <cstdint>

namespace dtrain::engine {

static_assert(std::endian::native == std::endian::little, "frames are little endian");

enum class Op : uint16_t {
  Fail = 1,  // the payload is the text of the error that ends the sender
  Leave,     // the sender is done and closes: no error
  Gradients,
  Parameters,
  Small,
  Blocks,
  Scatter,
  Gather,
};
const char* to_string(Op op);

struct FrameHeader {
  uint64_t magic = 0;  // frame_magic(key): payload is not taken for a header
  Op op = Op::Fail;
  uint16_t code = 0;  // Fail: of the error
  uint32_t reserved = 0;
  uint64_t sequence = 0;  // both ends count their exchanges
  uint64_t bytes = 0;     // that follow
};
static_assert(sizeof(FrameHeader) == 32);

constexpr uint64_t frame_magic(uint64_t key) {
  return key ^ 0x64747261696e4652;
}

}  // namespace dtrain::engine
