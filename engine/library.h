// A shared library that is looked for when it is first needed: so the engine starts on hosts without it.
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>

#include "schema/result.h"

namespace dtrain::engine {

class Library {
 public:
  // The first of the names that can be loaded; it stays loaded. `package` is what to install.
  static Result<Library> open(std::initializer_list<const char*> names, const char* package) {
    for (const char* name : names) {
      if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return Library(handle, name);
    }
    return Error{Code::FailedPrecondition, fmt::format("{} can't be loaded: {}", *names.begin(), dlerror()),
                 fmt::format("install {}, or set LD_LIBRARY_PATH to where it is", package)};
  }
  template <class Function>
  Status find(const char* name, Function& to) const {
    to = reinterpret_cast<Function>(dlsym(handle_, name));
    if (to != nullptr) return ok();
    return Error{Code::FailedPrecondition, fmt::format("{} has no {}: it is of another version", name_, name), ""};
  }

 private:
  Library(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  void* handle_;
  std::string name_;
};

}  // namespace dtrain::engine
