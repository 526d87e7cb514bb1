# Registers every doctest case of the level binaries with ctest, one ctest test a case file would be too
# coarse and one a case too slow to start; so: one ctest test per test file (its TEST_SUITE).
foreach(level unit sim integration e2e)
  if(NOT TARGET ${level}_tests)
    continue()
  endif()
  get_target_property(sources ${level}_tests SOURCES)
  foreach(source IN LISTS sources)
    file(RELATIVE_PATH name ${CMAKE_CURRENT_SOURCE_DIR} ${source})
    string(REGEX REPLACE "_test\\.cc$" "" name ${name})
    add_test(NAME ${name} COMMAND ${level}_tests --source-file=${source} --no-intro --no-version)
    set_tests_properties(${name} PROPERTIES LABELS ${level} TIMEOUT 300 SKIP_RETURN_CODE 77)
  endforeach()
endforeach()
