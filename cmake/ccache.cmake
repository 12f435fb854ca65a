# Repeated builds are faster with ccache; without it nothing changes. A launcher chosen by the caller stays.
find_program(FOVEA_CCACHE ccache)
mark_as_advanced(FOVEA_CCACHE)
if(PROJECT_IS_TOP_LEVEL AND FOVEA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths relative to the checkout, so that another clone of the same sources finds what this one compiled. The sloppiness
  # is what ccache asks for if headers are precompiled; no source of ours uses __DATE__ or __TIME__.
  get_filename_component(checkout ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${checkout} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${FOVEA_CCACHE})
endif()
