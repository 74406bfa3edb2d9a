# The compiler options that every target shares, as the interface target fp8q_options.

option(FP8Q_WERROR "Treat compiler warnings as errors" OFF)
set(FP8Q_SANITIZE "" CACHE STRING "Sanitizers to build with, as the compiler's -fsanitize= takes them")

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

add_library(fp8q_options INTERFACE)
target_include_directories(fp8q_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(fp8q_options INTERFACE _GNU_SOURCE FQ_VERSION="${PROJECT_VERSION}")
# For C alone: nvcc has options of its own, and the tests of the kernels link this too.
function(add_c_options)
  target_compile_options(fp8q_options INTERFACE "$<$<COMPILE_LANGUAGE:C>:${ARGN}>")
endfunction()
add_c_options(-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wconversion)
# Exact arithmetic: IEEE-754 as written, no contraction of a·b + c into one rounding.
add_c_options(-ffp-contract=off)
# The program reads files from strangers: a slip that the tests missed ends it at once.
add_c_options(-fstack-protector-strong
              "$<$<CONFIG:Release>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")

if(FP8Q_WERROR)
  add_c_options(-Werror)
endif()

if(FP8Q_SANITIZE)
  add_c_options(-fsanitize=${FP8Q_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(fp8q_options INTERFACE -fsanitize=${FP8Q_SANITIZE})
endif()
