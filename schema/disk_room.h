// How much of a disk output may take. The last of each disk is left to what is small and must not
// wait for room: what the daemon decides, and how replicas end.
#pragma once

#include <cstdint>

namespace dtrain {

// Of what is free where the open file `fd` lies. All of it where the file system tells no size.
uint64_t log_room_bytes(int fd);
// Output on its way to a log that may lie on the same disk: half as much again is left, for what takes
// some of the disk until it gets there.
uint64_t spool_room_bytes(int fd);

}  // namespace dtrain
