#include "engine/kernels/scratch.h"

#include <array>
#include <cstdlib>
#include <memory>
#include <new>

namespace dtrain::engine {

namespace {

struct Free {
  void operator()(void* block) const { std::free(block); }
};
struct Block {
  std::unique_ptr<void, Free> memory;
  size_t bytes = 0;
};

}  // namespace

void* scratch_bytes(Scratch purpose, size_t bytes) {
  thread_local std::array<Block, static_cast<size_t>(Scratch::Count)> blocks;
  Block& block = blocks[static_cast<size_t>(purpose)];
  if (block.bytes < bytes) {
    constexpr size_t kLine = 64;
    const size_t rounded = (bytes + kLine - 1) / kLine * kLine;
    block.memory.reset(std::aligned_alloc(kLine, rounded));
    if (!block.memory) throw std::bad_alloc();
    block.bytes = rounded;
  }
  return block.memory.get();
}

}  // namespace dtrain::engine
