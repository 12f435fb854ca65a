# The stock bundle: kernels of the formulas that most people use (src/engines/jit/stock.txt), compiled by NVRTC for GPUs
# that need not be here, one file per architecture in build/fovea-stock/. Installed beside the library, which finds them.
#
# Not part of `all`: it takes minutes. `cmake --build --preset release --target fovea_stock` makes it if NVRTC is found;
# what was compiled before is kept by content in build/stock-cache/.
set(FOVEA_STOCK_DEVICES a100 h200 b200 CACHE STRING "The described GPUs that the stock bundle is compiled for")

function(fovea_stock)
  set(lines ${PROJECT_SOURCE_DIR}/src/engines/jit/stock.txt)
  set(environment FOVEA_CACHE_DIR=${PROJECT_BINARY_DIR}/stock-cache FOVEA_CACHE_LIMIT=2G)
  if(FOVEA_CUDA_PACKAGES)
    list(APPEND environment FOVEA_CUDNN_DIR=${FOVEA_CUDA_PACKAGES}/nvidia/cudnn/lib)
  endif()
  set(folder ${PROJECT_BINARY_DIR}/fovea-stock)
  set(bundles "")
  foreach(device IN LISTS FOVEA_STOCK_DEVICES)
    add_custom_command(OUTPUT ${folder}/${device}.fovea
      COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
      COMMAND ${CMAKE_COMMAND} -E env ${environment}
        $<TARGET_FILE:fovea_cli> compile ${lines} --device ${device} --engine jit -o ${folder}/${device}.fovea
      DEPENDS ${lines} fovea fovea_cli COMMENT "Kernels of stock formulas for ${device}" VERBATIM)
    list(APPEND bundles ${folder}/${device}.fovea)
  endforeach()
  add_custom_target(fovea_stock DEPENDS ${bundles})
endfunction()

if(FOVEA_CLI)
  fovea_stock()
endif()
