# Registers the test cases of the level binaries with ctest, one ctest test per file: per binary would be
# too coarse, per case too slow to start. The pattern, not the path: compilers may be told to shorten it.
foreach(level unit sim integration engine gpu e2e)
  if(NOT TARGET ${level}_tests)
    continue()
  endif()
  get_target_property(sources ${level}_tests SOURCES)
  foreach(source IN LISTS sources)
    file(RELATIVE_PATH name ${CMAKE_CURRENT_SOURCE_DIR} ${source})
    string(REGEX REPLACE "_test\\.cc$" "" name ${name})
    add_test(NAME ${name} COMMAND ${level}_tests "--source-file=*tests/${name}_test.cc" --no-intro --no-version)
    set_tests_properties(${name} PROPERTIES LABELS ${level} TIMEOUT 300 SKIP_RETURN_CODE 77)
  endforeach()
endforeach()
# The other instruction sets, which a machine falls back to.
if(TARGET engine_tests)
  set(isas avx512 avx2 baseline)
  if(NOT DTRAIN_SANITIZE)
    list(APPEND isas zen4)   # the code of avx512, which leaves out more
  endif()
  foreach(isa IN LISTS isas)
    foreach(folder kernels models)
      add_test(NAME engine/${folder}/${isa} COMMAND engine_tests "--source-file=*tests/engine/${folder}/*"
               --no-intro --no-version)
      set_tests_properties(engine/${folder}/${isa} PROPERTIES LABELS engine TIMEOUT 300
                           ENVIRONMENT DTRAIN_ISA=${isa})
    endforeach()
  endforeach()
endif()
# Whole trainings, each of which is some ten times slower there.
if(DTRAIN_SANITIZE AND TARGET engine_tests)
  set_tests_properties(engine/training/replica engine/training/replica_lost PROPERTIES TIMEOUT 900)
endif()
if(TARGET gpu_tests)
  set_tests_properties(gpu/training gpu/models gpu/model_parts gpu/step_ahead PROPERTIES TIMEOUT 900)
endif()
# What takes longest begins first, so that it does not run alone at the end: from a second time on ctest knows by itself.
foreach(name e2e/tensorflow e2e/build e2e/tensorboard e2e/engine_faults e2e/elastic engine/training/replica
        engine/training/replica_lost engine/training/split_model engine/models/baseline gpu/models gpu/model_parts
        gpu/step_ahead)
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
endforeach()
# They install what they run.
if(TARGET e2e_tests)
  set_tests_properties(e2e/build PROPERTIES TIMEOUT 900)
  set_tests_properties(e2e/tensorboard PROPERTIES TIMEOUT 900)
  set_tests_properties(e2e/tensorflow PROPERTIES TIMEOUT 1500)
endif()
