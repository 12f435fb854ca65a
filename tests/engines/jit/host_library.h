// Device code compiled by the host's compiler when a test runs, and loaded. Its headers see
// host_numbers.h instead of a GPU.
#pragma once

#include <string>

namespace fovea::test {

class HostLibrary {
 public:
  HostLibrary() = default;
  ~HostLibrary();
  HostLibrary(const HostLibrary&) = delete;
  HostLibrary& operator=(const HostLibrary&) = delete;

  // `text` may include headers of src/ and tests/, as other sources do.
  // Returns what the compiler says if it fails; empty: it is loaded.
  std::string build(const std::string& text);

  template <class Function>
  Function* find(const std::string& name) const {
    return reinterpret_cast<Function*>(address(name));
  }

 private:
  void* address(const std::string& name) const;
  void* library_ = nullptr;
};

}  // namespace fovea::test
