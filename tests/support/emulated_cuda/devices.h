// What the parts of the emulated runtime tell each other.
#pragma once

#include "emulator.h"

namespace emulated {

int current_device();  // of this thread
int device_of(Stream* stream);  // ends the process if there is no such stream any more
// Until its streams have nothing more to do.
void wait_for_device(int device);

}  // namespace emulated
