// What the parts of the emulated runtime tell each other.
#pragma once

namespace emulated {

int current_device();  // of this thread
// Until its streams have nothing more to do.
void wait_for_device(int device);

}  // namespace emulated
