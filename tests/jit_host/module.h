// A kernel's shared object, loaded into this process for good.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tests/jit_host/block.h"

namespace fovea::on_host {

class Module {
 public:
  explicit Module(std::string_view image);     // throws std::runtime_error
  Kernel find(const std::string& name) const;  // null: not there

 private:
  void* library_ = nullptr;
};

// The size of a shared object in memory; 0: it is none that this machine runs.
std::size_t image_bytes(const void* image);

}  // namespace fovea::on_host
