# The libraries of checksums, as the interface target fp8q_checksums: libdeflate and zlib for CRC-32,
# the header of xxHash. Their static libraries are taken where they are installed, so that the
# program runs where they are not.

find_path(DEFLATE_INCLUDE_DIR libdeflate.h REQUIRED)
find_library(DEFLATE_LIBRARY NAMES libdeflate.a deflate REQUIRED)
find_path(ZLIB_INCLUDE_DIR zlib.h REQUIRED)
find_library(ZLIB_LIBRARY NAMES libz.a z REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)

add_library(fp8q_checksums INTERFACE)
target_include_directories(fp8q_checksums SYSTEM INTERFACE ${DEFLATE_INCLUDE_DIR}
                           ${ZLIB_INCLUDE_DIR} ${XXHASH_INCLUDE_DIR})
target_link_libraries(fp8q_checksums INTERFACE ${DEFLATE_LIBRARY} ${ZLIB_LIBRARY})
