// One build per key among the threads of a process: the first to ask flies, the others wait and get
// the same blob, or the same exception. Knows nothing of disks. Used by Shelf.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "store/store.h"

namespace fovea::store {

struct Found {
  Blob blob;
  Origin origin = Origin::Built;
};

class Flights {
 public:
  Found once(const Key& key, const std::function<Found()>& get);

 private:
  struct Flight {
    bool done = false;
    Found found;
    std::exception_ptr failure;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };

  std::mutex mutex_;
  std::condition_variable finished_;
  std::unordered_map<Key, std::shared_ptr<Flight>, Hash> flights_;
};

}  // namespace fovea::store
