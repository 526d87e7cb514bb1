# Every library from outside, as one target each. Everything is linked statically by default, so that
# adding a host is copying one file and versions can't drift apart.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Boost 1.81 REQUIRED)        # header-only: Asio, Process v2
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

# name(target, pkg-config module, libraries that also exist as .a)
function(dtrain_library target module)
  pkg_check_modules(${target} REQUIRED ${module})
  add_library(dtrain_${target} INTERFACE)
  target_include_directories(dtrain_${target} SYSTEM INTERFACE ${${target}_INCLUDE_DIRS})
  if(DTRAIN_STATIC)
    set(flags "")
    foreach(flag IN LISTS ${target}_STATIC_LDFLAGS)
      string(REGEX REPLACE "^-l" "" name "${flag}")
      find_library(dtrain_static_${name} NAMES lib${name}.a)
      mark_as_advanced(dtrain_static_${name})
      if(flag MATCHES "^-l" AND NOT name MATCHES "^(dl|rt|m|pthread|atomic)$" AND dtrain_static_${name})
        list(APPEND flags ${dtrain_static_${name}})
      elseif(NOT flag MATCHES "push-state|pop-state|as-needed")
        list(APPEND flags ${flag})
      endif()
    endforeach()
    # Static libraries that need each other, in whatever order pkg-config lists them.
    target_link_libraries(dtrain_${target} INTERFACE -Wl,--start-group ${flags} -Wl,--end-group)
  else()
    target_link_libraries(dtrain_${target} INTERFACE ${${target}_LDFLAGS})
  endif()
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
