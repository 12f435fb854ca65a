# Repeated builds are faster with ccache; without it nothing changes. A launcher chosen by the caller stays.
find_program(FOVEA_CCACHE ccache)
mark_as_advanced(FOVEA_CCACHE)
if(PROJECT_IS_TOP_LEVEL AND FOVEA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FOVEA_CCACHE})
endif()
