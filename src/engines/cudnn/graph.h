// A cuDNN graph that was built or read back, ready to run. In builds without the headers of
// cudnn-frontend these functions exist and refuse.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/device.h"
#include "engines/cudnn/graph_spec.h"

namespace fovea::cudnn {

// Whether this build has cudnn-frontend.
bool graphs_are_built_in();
std::string frontend_version();  // "1.32.0"

// Asks cuDNN itself, without building: its validation, heuristics and support check. Throws
// Unsupported with cuDNN's words for what it calls not supported, DeviceError for everything else.
// `handle` is null for a described device.
void check_support(const GraphSpec& spec, const Device& device, void* handle);

// Builds and serialises.
std::vector<std::uint8_t> build(const GraphSpec& spec, const Device& device, void* handle);

class Graph {
 public:
  virtual ~Graph() = default;
  virtual std::size_t workspace_bytes() const = 0;
  // Pointers in the order of uids; those of tensors by value point to the host.
  virtual void execute(void* handle, std::span<void*> pointers, void* workspace) const = 0;
};
// Throws DeviceError, or Unsupported, for whatever is wrong with these bytes.
std::unique_ptr<Graph> load(std::span<const std::uint8_t> serialized, void* handle);

// A cudnnHandle_t on the current device, never destroyed: cuDNN may be gone when a process ends.
void* create_handle();
void set_stream(void* handle, void* stream);

}  // namespace fovea::cudnn
