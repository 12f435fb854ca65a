// Where files of shared libraries are, or may be.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fovea::cuda {

// The file that holds this symbol; "" if the linker does not say.
std::string file_of(const void* symbol);

// The file that a handle of dlopen stands for.
std::string loaded_path(void* library);

// site-packages/nvidia of every Python that an environment variable or our own place points to.
std::vector<std::filesystem::path> python_packages();

}  // namespace fovea::cuda
