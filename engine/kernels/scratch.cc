#include "engine/kernels/scratch.h"

#include <algorithm>
#include <array>
#include <memory>

#include "engine/buffer.h"

namespace dtrain::engine {

namespace {

struct Block {
  std::shared_ptr<void> memory;
  size_t bytes = 0;
};

}  // namespace

void* scratch_bytes(Scratch purpose, size_t bytes) {
  thread_local std::array<Block, static_cast<size_t>(Scratch::Count)> blocks;
  Block& block = blocks[static_cast<size_t>(purpose)];
  if (block.bytes < bytes) {
    // By half more at least: what is given back is not always used again.
    constexpr size_t kLine = 64;
    const size_t rounded = (std::max(bytes, block.bytes + block.bytes / 2) + kLine - 1) / kLine * kLine;
    block = {};
    block = {buffer_memory(rounded), rounded};
  }
  return block.memory.get();
}

}  // namespace dtrain::engine
