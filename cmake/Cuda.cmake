# Sets FP8Q_CUDA where there is a CUDA toolkit, and enables its language.
#
# Without one, or with -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON, fp8q is built for the CPU alone.
# -DCMAKE_CUDA_ARCHITECTURES=90 builds for one kind of GPU, which is quicker.

set(FP8Q_CUDA OFF)
find_package(CUDAToolkit 12.0 QUIET)
if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
  message(STATUS "No CUDA toolkit: fp8q will compute on the CPU alone")
  return()
endif()
set(FP8Q_CUDA ON)

# Machine code for the generations since Ampere: each runs on the later GPUs of its own generation,
# and Ada's (89), which converts to FP8 itself, is one of its own. Drivers of others compile Hopper's
# PTX.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 89-real 90 100-real 120-real)
endif()
# Of the architectures, the ones with FP8 tensor cores.
set(FP8Q_CUDA_FP8_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES})
list(FILTER FP8Q_CUDA_FP8_ARCHITECTURES EXCLUDE REGEX "^(5|6|7|80|86|87)")
if(NOT FP8Q_CUDA_FP8_ARCHITECTURES)
  set(FP8Q_CUDA_FP8_ARCHITECTURES 89)
endif()
set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
enable_language(CUDA)

# Kernels are started by calls of C (kernels/cuda/start.cuh): programs link as C, without the C++
# library, and with the static CUDA runtime, which finds the driver when it is called.
set(CMAKE_CUDA_LINKER_PREFERENCE_PROPAGATES OFF)
set(CMAKE_CUDA_IMPLICIT_LINK_LIBRARIES "")
set(CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES "")
set(CMAKE_CUDA_RUNTIME_LIBRARY None)
