// cuDNN and what it needs (cuBLASLt, NVRTC), loaded at run time, all from one installation: two
// versions of cuDNN's parts in one process crash or compute nonsense. Searched in this order:
// FOVEA_CUDNN_DIR; what the process has loaded already (PyTorch's, say); the Python environment's
// packages; the system.
#pragma once

#include <string>
#include <vector>

namespace fovea::cuda {

struct CudnnLibrary {
  void* library = nullptr;  // of dlopen; null if there is none
  int version = 0;          // 91900 for 9.19.0
  std::string path;         // of libcudnn.so.9
  std::string problem;      // what is missing and what to install; "" where nothing is
  bool usable() const { return library != nullptr && problem.empty(); }
};

// Loaded once, at the first call; stays for ever.
const CudnnLibrary& cudnn_library();

std::string version_text(int version);  // "9.19.0"

// Folders from which parts of cuDNN are loaded now. More than one is a mixture: see doctor.
std::vector<std::string> cudnn_folders_in_use();

// For plans of GPUs that are not here: a libcuda.so.1 must exist. Loads our stand-in unless a real
// driver is there. Throws DeviceError where it cannot be found.
void ensure_driver_or_stand_in();

}  // namespace fovea::cuda
