// One build per key among the threads of a process: the first to ask builds, the others wait and
// get the same value, or the same exception. Keeps nothing once a build has ended.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace fovea {

template <class Key, class Value, class Hash>
class SingleFlight {
 public:
  // `build` runs outside the lock. It looks first whether the value is there: a build may have
  // ended since the caller looked.
  template <class Build>
  Value once(const Key& key, const Build& build) {
    const auto flight = std::make_shared<Flight>();
    {
      std::unique_lock lock(mutex_);
      const auto [at, first] = flights_.emplace(key, flight);
      if (!first) return wait(lock, at->second);
    }
    Value value{};
    std::exception_ptr failure;
    try {
      value = build();
    } catch (...) {
      failure = std::current_exception();
    }
    end(key, flight, value, failure);
    if (failure) std::rethrow_exception(failure);
    return value;
  }

 private:
  struct Flight {
    bool done = false;
    Value value{};
    std::exception_ptr failure;
  };

  Value wait(std::unique_lock<std::mutex>& lock, std::shared_ptr<Flight> flight) {
    finished_.wait(lock, [&] { return flight->done; });
    if (flight->failure) std::rethrow_exception(flight->failure);
    return flight->value;
  }

  void end(const Key& key, const std::shared_ptr<Flight>& flight, const Value& value,
           const std::exception_ptr& failure) {
    {
      const std::lock_guard lock(mutex_);
      flight->failure = failure;
      try {  // only if someone else holds the flight is anyone waiting for a copy
        if (!failure && flight.use_count() > 2) flight->value = value;
      } catch (...) {  // no memory for a copy: those who wait are told, and do not wait for ever
        flight->failure = std::current_exception();
      }
      flight->done = true;
      flights_.erase(key);
    }
    finished_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable finished_;
  std::unordered_map<Key, std::shared_ptr<Flight>, Hash> flights_;
};

}  // namespace fovea
