// Which C library this executable takes: copied to a machine or seen in an image whose own is older, it does not begin.
#pragma once

#include <string>

namespace dtrain {

// "2.36": the newest version of glibc that one of its functions is of.
std::string needed_glibc();

}  // namespace dtrain
