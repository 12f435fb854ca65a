#include "store/flights.h"

namespace fovea::store {

std::size_t Flights::Hash::operator()(const Key& key) const {
  return std::hash<std::string>{}(key.content);  // the rest is the same for most
}

Found Flights::once(const Key& key, const std::function<Found()>& get) {
  const auto flight = std::make_shared<Flight>();
  {
    std::unique_lock lock(mutex_);
    const auto [at, first] = flights_.emplace(key, flight);
    if (!first) {
      const std::shared_ptr<Flight> under_way = at->second;
      finished_.wait(lock, [&] { return under_way->done; });
      if (under_way->failure) std::rethrow_exception(under_way->failure);
      return under_way->found;
    }
  }
  Found found;
  std::exception_ptr failure;
  try {
    found = get();
  } catch (...) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    flight->failure = failure;
    // Only where someone else holds the flight is anyone waiting for a copy.
    try {
      if (!failure && flight.use_count() > 2) flight->found = found;
    } catch (...) {  // no memory for a copy: those who wait are told, and do not wait for ever
      flight->failure = std::current_exception();
    }
    flight->done = true;
    flights_.erase(key);
  }
  finished_.notify_all();
  if (failure) std::rethrow_exception(failure);
  return found;
}

}  // namespace fovea::store
