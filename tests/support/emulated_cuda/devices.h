// What the parts of the emulated runtime tell each other.
#pragma once

#include "cuda_runtime.h"

namespace emulated {

cudaError_t failed(cudaError_t error);  // is what cudaGetLastError() tells
// For what may not be done while this thread captures: whether it does, which then comes to nothing.
bool breaks_capture();
int current_device();  // of this thread
int device_of(Stream* stream);  // ends the process if there is no such stream any more
// Until its streams have nothing more to do.
void wait_for_device(int device);

}  // namespace emulated
