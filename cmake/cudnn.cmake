# Engine cudnn is built if the headers of cudnn-frontend, cuDNN, CUDA and NVRTC are found; the libraries are looked
# for at run time. Without the headers the engine is there, and says why it refuses.
#
# fovea_cudnn(<target>): the sources of the part, and the driver's stand-in.
set(FOVEA_CUDNN "AUTO" CACHE STRING "Build engine cudnn: ON, OFF, or AUTO: if its headers are found")
set(FOVEA_CUDA_PACKAGES "" CACHE PATH
  "The site-packages folder with NVIDIA's packages (tools/requirements-cuda.txt); empty: that of .venv-cuda/")
if(NOT FOVEA_CUDA_PACKAGES)  # looked for each time: ./dev setup may have made it since
  file(GLOB FOVEA_CUDA_PACKAGES LIST_DIRECTORIES TRUE ${PROJECT_SOURCE_DIR}/.venv-cuda/lib/python3*/site-packages)
endif()

function(fovea_cudnn target)
  set(packages ${FOVEA_CUDA_PACKAGES})
  find_path(FOVEA_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${packages}/include)
  find_path(FOVEA_CUDNN_INCLUDE cudnn.h HINTS ${packages}/nvidia/cudnn/include)
  find_path(FOVEA_CUDA_INCLUDE cuda.h HINTS ${packages}/nvidia/cu13/include PATHS /usr/local/cuda/include)
  find_path(FOVEA_NVRTC_INCLUDE nvrtc.h HINTS ${packages}/nvidia/cu13/include PATHS /usr/local/cuda/include)
  set(found FALSE)
  if(FOVEA_CUDNN_FRONTEND_INCLUDE AND FOVEA_CUDNN_INCLUDE AND FOVEA_CUDA_INCLUDE AND FOVEA_NVRTC_INCLUDE)
    set(found TRUE)
  endif()
  if(FOVEA_CUDNN STREQUAL "OFF")
    set(found FALSE)
  elseif(FOVEA_CUDNN STREQUAL "ON" AND NOT found)
    message(FATAL_ERROR "FOVEA_CUDNN=ON, but the headers of cudnn-frontend, cuDNN, CUDA or NVRTC were not found.\n"
      "Get them:  python3 -m venv .venv-cuda && .venv-cuda/bin/pip install --no-deps -r tools/requirements-cuda.txt\n"
      "Or do without engine cudnn:  -DFOVEA_CUDNN=OFF")
  endif()
  set(FOVEA_CUDNN_FOUND ${found} CACHE INTERNAL "engine cudnn is part of this build")
  # A source of its own for a build without: what was compiled before the headers came is not compiled again.
  if(found)
    set(sources engines/cudnn/graph.cpp engines/cudnn/symbols.cpp)
    fovea_frontend_sources(${sources})
  else()
    message(STATUS "engine cudnn is not part of this build: it will refuse everything")
    set(sources engines/cudnn/no_frontend.cpp)
  endif()
  target_sources(${target} PRIVATE ${sources})
endfunction()

# -O1: cudnn-frontend is a minute of compilation and a microsecond of each call. Others' code and its templates are not
# looked at by sanitizers and warnings.
function(fovea_frontend_sources)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS
    "-O1;-w;-fno-sanitize=all;-isystem;${FOVEA_CUDNN_FRONTEND_INCLUDE};-isystem;${FOVEA_CUDNN_INCLUDE};-isystem;${FOVEA_CUDA_INCLUDE};-idirafter;${FOVEA_NVRTC_INCLUDE};-idirafter;${FOVEA_CUDA_INCLUDE}/cccl")
endfunction()

# A libcuda.so.1 that is none, in a folder that nothing searches.
function(fovea_standin)
  add_library(fovea_standin SHARED cuda/standin/libcuda.c)
  set_target_properties(fovea_standin PROPERTIES
    OUTPUT_NAME cuda
    VERSION 1
    SOVERSION 1
    C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fovea-standin)
  target_compile_options(fovea_standin PRIVATE -w -fno-sanitize=all)
  target_link_options(fovea_standin PRIVATE -fno-sanitize=all)
  target_link_libraries(fovea_standin PRIVATE ${CMAKE_DL_LIBS})
  add_dependencies(fovea fovea_standin)
endfunction()
