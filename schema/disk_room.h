// How much of a disk output may take. The last of each disk is left to what is small and must not
// wait for room: what the daemon decides, and how replicas end.
#pragma once

#include <cstdint>

namespace dtrain {

// Of what is free where the open file `fd` lies. All of it where the file system tells no size.
uint64_t output_room_bytes(int fd);

}  // namespace dtrain
