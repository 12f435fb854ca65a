// NVRTC, NVIDIA's compiler of CUDA C++ as a library, loaded at run time: libnvrtc.so.13 or .12,
// from what the process has loaded already, the installation of FOVEA_CUDNN_DIR, the Python
// environment's packages, or the system.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fovea::cuda {

struct NvrtcLibrary {
  std::string path;
  std::string version;             // "13.0"
  std::vector<int> architectures;  // that it compiles for: 80, 90, 100 ...
  std::string problem;             // what is missing and what to install; "" if nothing is
  bool usable() const { return problem.empty(); }
};

// Loaded once, at the first call; stays for ever.
const NvrtcLibrary& nvrtc_library();

// What to compile for a GPU of this compute capability: "sm_90a", or "compute_120" (PTX, which the
// driver compiles) for a GPU that is newer than what `known` lists.
std::string architecture_for(int sm, std::span<const int> known);

// A header in memory that a source may include by this name.
struct NamedText {
  const char* name;
  const char* text;
};

struct NvrtcRequest {
  std::string source;
  std::string name;  // of the source, in messages
  std::string architecture;
  std::vector<std::string> options;
  std::span<const NamedText> headers;
};

struct NvrtcResult {
  bool compiled = false;
  std::vector<std::uint8_t> image;  // a cubin; PTX for compute_...
  std::string log;                  // of the compiler and ptxas
};

// Safe from many threads, which compile at the same time. Throws DeviceError if there is no
// NVRTC, or if it fails other than by an error in the source.
NvrtcResult nvrtc_compile(const NvrtcRequest& request);

}  // namespace fovea::cuda
