// GPUs that are described rather than present: the built-in ones and JSON files.
#pragma once

#include <optional>
#include <string>

namespace fovea {

// The JSON text of a built-in description, such as h200.
std::optional<std::string> built_in_description(const std::string& name);

// The text of a description's file. Throws InvalidArgument where it is none or too large.
std::string read_description(const std::string& path);

}  // namespace fovea
