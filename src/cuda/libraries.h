// cuDNN and what it needs (cuBLASLt, NVRTC), loaded at run time, all from one installation, since
// parts of two versions of cuDNN in one process crash or compute nonsense. Searched in this order:
// FOVEA_CUDNN_DIR; what the process has loaded already (by PyTorch, say); the Python environment's
// packages; the system.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fovea::cuda {

struct CudnnLibrary {
  void* library = nullptr;  // of dlopen; null if there is none
  int version = 0;          // 91900 for 9.19.0
  std::string path;         // of libcudnn.so.9
  std::string problem;      // what is missing and what to install; "" if nothing is
  bool usable() const { return library != nullptr && problem.empty(); }
};

// Loaded by the first call, and never unloaded.
const CudnnLibrary& cudnn_library();

std::string version_text(int version);  // "9.19.0"

// Folders from which parts of cuDNN are loaded now. More than one is a mixture: see doctor.
std::vector<std::string> cudnn_folders_in_use();

// For plans of GPUs that are not here: a libcuda.so.1 must exist. Loads our stand-in unless a real
// driver is there. Throws DeviceError if the stand-in cannot be found.
void ensure_driver_or_stand_in();

// The file that holds this symbol; "" if the linker does not say.
std::string file_of(const void* symbol);

// The file that a handle of dlopen stands for.
std::string loaded_path(void* library);

// site-packages/nvidia of the active Python environments, and of the one that holds this library.
std::vector<std::filesystem::path> python_packages();

}  // namespace fovea::cuda
