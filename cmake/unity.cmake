# Sources of one room are compiled several at a time: most of what compiling one takes is reading the headers of C++, which
# they share. Names in anonymous namespaces of a room must therefore differ; the compiler says where they do not.
option(FOVEA_UNITY "Compile several sources of a room at a time" ON)

# fovea_unity(<target> <source>...): groups of eight, of one folder each. Left out by whoever calls: sources with flags of
# their own.
function(fovea_unity target)
  if(NOT FOVEA_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(source IN LISTS ARGN)
    get_filename_component(folder ${source} DIRECTORY)
    string(REGEX REPLACE "^(engines/[a-z]+).*" "\\1" room "${folder}")  # with the folders inside an engine
    string(MAKE_C_IDENTIFIER "${room}" room)
    math(EXPR ${room}_count "0${${room}_count} + 1")
    math(EXPR group "(${${room}_count} - 1) / 8")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${room}_${group})
  endforeach()
endfunction()
