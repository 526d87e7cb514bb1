#include "engine/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace dtrain::engine {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Smaller ones come from the heap.
constexpr size_t kLarge = 64 * 1024;
// Of addresses: pages are there once they are touched.
constexpr size_t kPoolBytes = 64 * kHugePage;

// The address sanitizer sees where a buffer ends on the heap only.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kPools = false;
#else
constexpr bool kPools = true;
#endif

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::shared_ptr<void> from_heap(size_t bytes) {
  void* const block = std::aligned_alloc(64, bytes == 0 ? 64 : bytes);
  if (block == nullptr) throw std::bad_alloc();
  std::memset(block, 0, bytes);
  return {block, [](void* memory) { std::free(memory); }};
}

// Whole huge pages of zeros, from an address that is a multiple of them.
std::shared_ptr<char> map_huge(size_t bytes) {
  const size_t mapped = bytes + kHugePage;
  void* const at = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  std::shared_ptr<void> all(at, [mapped](void* memory) { ::munmap(memory, mapped); });
  char* const first = reinterpret_cast<char*>(round_up(reinterpret_cast<size_t>(at), kHugePage));
  ::madvise(first, bytes, MADV_HUGEPAGE);
  return {std::move(all), first};
}

// What a thread's next buffers are cut from; it lives as long as one of them.
struct Pool {
  std::shared_ptr<char> memory;
  size_t used = kPoolBytes;
};

// Now, not while there is work to do.
void touch(char* begin, size_t bytes) {
  constexpr size_t kPage = 4096;
  for (size_t at = 0; at < bytes; at += kPage) static_cast<volatile char*>(begin)[at] = 0;
}

}  // namespace

std::shared_ptr<void> buffer_memory(size_t bytes) {
  if (!kPools || bytes < kLarge) return from_heap(bytes);
  if (bytes >= kPoolBytes / 4) {
    auto memory = map_huge(round_up(bytes, kHugePage));
    touch(memory.get(), bytes);
    return memory;
  }
  thread_local Pool pool;
  if (pool.used + bytes > kPoolBytes) pool = {map_huge(kPoolBytes), 0};
  // A line more each time: buffers that are a power of two apart push each other out of the cache.
  char* const at = pool.memory.get() + pool.used;
  pool.used += bytes + 64;
  touch(at, bytes);
  return {pool.memory, at};
}

}  // namespace dtrain::engine
