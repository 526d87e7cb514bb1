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

# Attention by cuDNN: its own headers are here where it is installed, and its frontend is nothing but headers, which
# come from Python's package index unless CUDNN_FRONTEND_PATH says where they are. Without either the engine's
# own kernels do it, which use no tensor cores.
find_path(DTRAIN_CUDNN_INCLUDE cudnn_backend.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDNN_PATH PATH_SUFFIXES include)
find_path(DTRAIN_CUDNN_FRONTEND cudnn_frontend.h HINTS ENV CUDNN_FRONTEND_PATH PATH_SUFFIXES include)
if(DTRAIN_CUDNN_INCLUDE AND NOT DTRAIN_CUDNN_FRONTEND)
  set(version 1.32.0)
  set(sha256 c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0)
  set(fetched ${CMAKE_BINARY_DIR}/cudnn-frontend)
  # Of one platform, whatever this one is: the headers are the same.
  execute_process(
    COMMAND python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11
            --implementation cp --platform manylinux_2_28_x86_64 --dest ${fetched} nvidia-cudnn-frontend==${version}
    TIMEOUT 120 RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE why)
  file(GLOB wheel ${fetched}/*.whl)
  if(failed OR NOT wheel)
    string(REGEX REPLACE "\n.*" "" why "${why}")
    message(STATUS "cuDNN's frontend can't be fetched (${why}): set CUDNN_FRONTEND_PATH to where nvidia-cudnn-frontend's "
                   "headers are")
  else()
    file(SHA256 ${wheel} found)
    if(NOT found STREQUAL sha256)
      message(FATAL_ERROR "${wheel} is not what nvidia-cudnn-frontend ${version} was (SHA-256 ${found}): delete it, or set "
                          "CUDNN_FRONTEND_PATH")
    endif()
    file(ARCHIVE_EXTRACT INPUT ${wheel} DESTINATION ${fetched} PATTERNS include/*)
    find_path(DTRAIN_CUDNN_FRONTEND cudnn_frontend.h PATHS ${fetched}/include NO_DEFAULT_PATH)
  endif()
endif()
if(DTRAIN_CUDNN_INCLUDE AND DTRAIN_CUDNN_FRONTEND)
  message(STATUS "cuDNN: attention by it, ${DTRAIN_CUDNN_FRONTEND}")
  add_library(dtrain_cudnn INTERFACE)
  target_include_directories(dtrain_cudnn SYSTEM INTERFACE ${DTRAIN_CUDNN_INCLUDE} ${DTRAIN_CUDNN_FRONTEND})
  target_compile_definitions(dtrain_cudnn INTERFACE DTRAIN_CUDNN NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING)
else()
  message(STATUS "cuDNN: none, attention by the engine's own kernels")
endif()
