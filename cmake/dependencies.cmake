# Every outside dependency is found through this function, so that a missing one is always reported alike:
# what is missing, which Debian package has it, and which option does without.
#
#   fovea_find(<option> <Debian package> <package> <version> <further arguments of find_package>...)
#
# The option is `always` for what the library itself needs.
function(fovea_find option debian package version)
  find_package(${package} ${version} ${ARGN} QUIET)
  if(NOT ${package}_FOUND AND option STREQUAL "always")
    message(FATAL_ERROR
      "Fovea needs ${package} ${version} or newer, which was not found.\n"
      "On Debian or Ubuntu:  apt-get install ${debian}")
  elseif(NOT ${package}_FOUND)
    message(FATAL_ERROR
      "${option}=ON needs ${package} ${version} or newer, which was not found.\n"
      "On Debian or Ubuntu:  apt-get install ${debian}\n"
      "Or do without it:     -D${option}=OFF")
  endif()
endfunction()
