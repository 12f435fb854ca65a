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

function(fovea_find_cudnn_headers)
  set(packages ${FOVEA_CUDA_PACKAGES})
  find_path(FOVEA_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${packages}/include)
  find_path(FOVEA_CUDNN_INCLUDE cudnn.h HINTS ${packages}/nvidia/cudnn/include)
  find_path(FOVEA_CUDA_INCLUDE cuda.h HINTS ${packages}/nvidia/cu13/include PATHS /usr/local/cuda/include)
  find_path(FOVEA_NVRTC_INCLUDE nvrtc.h HINTS ${packages}/nvidia/cu13/include PATHS /usr/local/cuda/include)
  set(found TRUE)
  foreach(header IN ITEMS CUDNN_FRONTEND CUDNN CUDA NVRTC)
    if(NOT FOVEA_${header}_INCLUDE)
      set(found FALSE)
    endif()
  endforeach()
  if(NOT found AND FOVEA_CUDNN STREQUAL "ON")
    message(FATAL_ERROR "FOVEA_CUDNN=ON, but the headers of cudnn-frontend, cuDNN, CUDA or NVRTC were not found.\n"
      "Get them:  python3 -m venv .venv-cuda && .venv-cuda/bin/pip install --no-deps -r tools/requirements-cuda.txt\n"
      "Or do without engine cudnn:  -DFOVEA_CUDNN=OFF")
  endif()
  set(fovea_cudnn_found ${found} PARENT_SCOPE)
endfunction()

function(fovea_cudnn target)
  set(fovea_cudnn_found FALSE)
  set(FOVEA_CUDNN_FOUND FALSE CACHE INTERNAL "engine cudnn is part of this build")
  if(NOT FOVEA_CUDNN STREQUAL "OFF")
    fovea_find_cudnn_headers()
  endif()
  if(NOT fovea_cudnn_found)
    message(STATUS "engine cudnn: headers not found, it will refuse everything")
    target_sources(${target} PRIVATE engines/cudnn/graph.cpp)
    return()
  endif()
  set(FOVEA_CUDNN_FOUND TRUE CACHE INTERNAL "engine cudnn is part of this build")
  set(sources engines/cudnn/graph.cpp engines/cudnn/symbols.cpp)
  target_sources(${target} PRIVATE ${sources})
  fovea_frontend_sources(${sources})
endfunction()

# -O1: cudnn-frontend is a minute of compilation and a microsecond of each call. Others' code and its templates are not
# looked at by sanitizers and warnings.
function(fovea_frontend_sources)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS
    "-DFOVEA_CUDNN_HEADERS;-O1;-w;-fno-sanitize=all;-isystem;${FOVEA_CUDNN_FRONTEND_INCLUDE};-isystem;${FOVEA_CUDNN_INCLUDE};-isystem;${FOVEA_CUDA_INCLUDE};-idirafter;${FOVEA_NVRTC_INCLUDE};-idirafter;${FOVEA_CUDA_INCLUDE}/cccl")
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
