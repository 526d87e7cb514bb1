// Memory to read into. Unlike a string of that size it is not cleared first, so a program pays only
// for the pages it uses.
#pragma once

#include <cstddef>
#include <memory>

namespace dtrain {

class Buffer {
 public:
  explicit Buffer(size_t size)
      : bytes_(std::make_unique_for_overwrite<char[]>(size)), size_(size) {}
  char* data() { return bytes_.get(); }
  const char* data() const { return bytes_.get(); }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<char[]> bytes_;
  size_t size_;
};

}  // namespace dtrain
