# fovea_embed_headers(<target> <folder>): every header of the folder and of its folders as a text in the library, for a compiler at run
# time (src/engines/jit/source.h).
#
# As a script, with OUTPUT and FOLDER, it writes that source file.
if(CMAKE_SCRIPT_MODE_FILE)
  file(GLOB_RECURSE HEADERS RELATIVE ${FOLDER} ${FOLDER}/*.h)
  set(texts "")
  foreach(name IN LISTS HEADERS)
    file(READ ${FOLDER}/${name} text)
    string(APPEND texts "    {\"${name}\", R\"fovea_text(${text})fovea_text\"},\n")
  endforeach()
  file(WRITE ${OUTPUT} "// Written by cmake/embed.cmake.\n#include \"engines/jit/source.h\"\n\nnamespace fovea::jit {\n\n"
    "std::span<const cuda::NamedText> device_headers() {\n  static constexpr cuda::NamedText all[] = {\n${texts}  };\n"
    "  return all;\n}\n\n}  // namespace fovea::jit\n")
  return()
endif()

set(fovea_embed_script ${CMAKE_CURRENT_LIST_FILE})

function(fovea_embed_headers target folder)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${folder}/*.h)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/device_headers.cpp)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DFOLDER=${folder} -P ${fovea_embed_script}
    DEPENDS ${headers} ${fovea_embed_script} VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
