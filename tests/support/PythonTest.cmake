# fq_python_test(NAME LABEL SCRIPT [ARGS...]): a test in Python that drives the finished program.
# Exit 77 means skipped: a module, room or a right that the test needs is absent.
find_package(Python3 COMPONENTS Interpreter REQUIRED)

function(fq_python_test name label script)
  add_test(NAME ${name} COMMAND Python3::Interpreter ${script} ${ARGN}
           WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  set(environment "FP8Q=$<TARGET_FILE:fp8q>" "PYTHONPATH=${CMAKE_SOURCE_DIR}/tests"
      "PYTHONDONTWRITEBYTECODE=1")
  set_tests_properties(${name} PROPERTIES LABELS ${label} SKIP_RETURN_CODE 77 TIMEOUT 900
                       ENVIRONMENT "${environment}")
endfunction()
