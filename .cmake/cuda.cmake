# The CUDA toolkit, for the engine's backend. Kernels are compiled for these chips, and as PTX for newer ones.
# Libraries beside the runtime are loaded when they are needed, so that the engine starts without them.
if(NOT CMAKE_CUDA_COMPILER)
  find_program(DTRAIN_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT DTRAIN_NVCC)
    message(FATAL_ERROR "DTRAIN_CUDA needs nvcc, which is not in PATH nor in /usr/local/cuda/bin: install the CUDA "
                        "toolkit, or configure without (cmake --preset release)")
  endif()
  set(CMAKE_CUDA_COMPILER ${DTRAIN_NVCC})
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 75 80 90)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(DTRAIN_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${DTRAIN_CCACHE})
endif()
enable_language(CUDA)
# CMake 3.25 does not know yet how nvcc is told.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
find_package(CUDAToolkit REQUIRED)
