# Every library from outside, as one target each. Everything is linked statically by default, so that
# adding a host is copying one file and versions can't drift apart.
find_package(Threads REQUIRED)
find_program(PKG_CONFIG_EXECUTABLE NAMES pkg-config pkgconf REQUIRED)
find_package(Boost 1.81 REQUIRED)        # header-only: Asio, Process v2
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

# name(target, pkg-config module): libraries that also exist as .a are linked so. pkg-config is asked once, for gRPC's
# hundred modules take it half a second, and pkg_check_modules asks 18 times.
function(dtrain_library target module)
  set(asked "${module}")
  if(DTRAIN_STATIC)
    list(PREPEND asked --static)
  endif()
  if(NOT "${DTRAIN_FLAGS_OF_${target}_ASKED}" STREQUAL "${asked}")
    execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --cflags-only-I --libs ${asked}
                    OUTPUT_VARIABLE said ERROR_VARIABLE complaint RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(failed)
      message(FATAL_ERROR "${module} is not here: .cmake/install-packages.sh has the list\n${complaint}")
    endif()
    separate_arguments(said UNIX_COMMAND "${said}")
    set(DTRAIN_FLAGS_OF_${target} "${said}" CACHE INTERNAL "")
    set(DTRAIN_FLAGS_OF_${target}_ASKED "${asked}" CACHE INTERNAL "")
  endif()
  add_library(dtrain_${target} INTERFACE)
  set(flags "")
  foreach(flag IN LISTS DTRAIN_FLAGS_OF_${target})
    string(REGEX REPLACE "^-l" "" name "${flag}")
    if(DTRAIN_STATIC AND flag MATCHES "^-l" AND NOT name MATCHES "^(dl|rt|m|pthread|atomic)$")
      find_library(dtrain_static_${name} NAMES lib${name}.a)
      mark_as_advanced(dtrain_static_${name})
      if(dtrain_static_${name})
        set(flag ${dtrain_static_${name}})
      endif()
    endif()
    if(flag MATCHES "^-I(.+)")
      target_include_directories(dtrain_${target} SYSTEM INTERFACE ${CMAKE_MATCH_1})
    elseif(NOT DTRAIN_STATIC OR NOT flag MATCHES "push-state|pop-state|as-needed")
      list(APPEND flags ${flag})
    endif()
  endforeach()
  if(DTRAIN_STATIC)
    # Static libraries that need each other, in whatever order pkg-config lists them.
    set(flags -Wl,--start-group ${flags} -Wl,--end-group)
  endif()
  target_link_libraries(dtrain_${target} INTERFACE ${flags})
endfunction()

dtrain_library(grpc grpc++)
dtrain_library(protobuf protobuf-lite)
dtrain_library(nghttp2 libnghttp2)
dtrain_library(sqlite sqlite3)
dtrain_library(zstd libzstd)
dtrain_library(zlib zlib)
dtrain_library(crypto libcrypto)
dtrain_library(ssl libssl)
dtrain_library(xxhash libxxhash)
dtrain_library(yaml yaml-cpp)
dtrain_library(re2 re2)

add_library(dtrain_asio INTERFACE)
target_include_directories(dtrain_asio SYSTEM INTERFACE ${Boost_INCLUDE_DIRS})
target_compile_definitions(dtrain_asio INTERFACE BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_DISABLE_HANDLER_TYPE_REQUIREMENTS
                           BOOST_PROCESS_V2_HEADER_ONLY BOOST_PROCESS_USE_STD_FS)
target_link_libraries(dtrain_asio INTERFACE Threads::Threads)
# The thread sanitizer can't see fences: Asio does without them where its locks are enough, and
# counts references by another type, that has the order in the count itself.
if(DTRAIN_SANITIZE STREQUAL "thread")
  target_compile_definitions(dtrain_asio INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK
                             BOOST_ASIO_DISABLE_STD_ATOMIC)
endif()

find_program(PROTOC protoc REQUIRED)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
