# The library cJSON, as the target cjson: the installed one, or built in from its source.

set(FP8Q_CJSON_SOURCE "" CACHE PATH
    "Folder that holds cJSON.c and cJSON.h: built in, so that the program runs without the library")

if(FP8Q_CJSON_SOURCE)
  # Found as <cjson/cJSON.h>, as the installed one is.
  configure_file(${FP8Q_CJSON_SOURCE}/cJSON.h ${PROJECT_BINARY_DIR}/cjson/include/cjson/cJSON.h
                 COPYONLY)
  add_library(cjson STATIC ${FP8Q_CJSON_SOURCE}/cJSON.c)
  target_link_libraries(cjson INTERFACE m)
  target_include_directories(cjson SYSTEM INTERFACE ${PROJECT_BINARY_DIR}/cjson/include)
else()
  find_package(cJSON REQUIRED)
endif()
